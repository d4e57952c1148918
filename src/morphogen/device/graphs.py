"""Graphs of a CUDA device: recorded once, replayed with one call.

A graph reads and writes memory by address.  Whoever records one keeps everything that it reads
alive until the last replay; what it allocates comes from one pool, which all graphs share one after
the other.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor

from morphogen.compat import copy_each

Leaves = Mapping[Any, Tensor]  # of a carried tree, by index or name


def write_back(buffers: Leaves, values: Leaves) -> None:
    """Copy every value into the buffer of its key.  Values may be views of buffers."""
    taken = {buffer.untyped_storage().data_ptr() for buffer in buffers.values()}
    sources = [
        value.clone() if value.untyped_storage().data_ptr() in taken else value
        for value in (values[key] for key in buffers)
    ]
    copy_each(list(buffers.values()), sources)


class CudaGraphs:
    """Graphs with one memory pool and one stream."""

    fewest_passes = 4  # recording takes the host as long as a pass

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """Set up pool and stream; `cuda`: namespace of the classes and functions of `torch.cuda`
        used here.
        """
        self._cuda = cuda
        self._device = device
        self._pool, self._stream = cuda.graph_pool_handle(), cuda.Stream(device)
        # graph that keeps the pool: a pool ends with its last graph and cannot be used again
        self._first: Any = None

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Run the block on the stream of the graphs, after all earlier work and before all later
        work.

        Memory of the block may be freed and used again at any time: either stream waits for the
        other where it begins.
        """
        before = self._cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        try:
            with self._cuda.stream(self._stream):
                yield
        finally:
            before.wait_stream(self._stream)

    def record(self, step: Callable[[], Leaves], buffers: Leaves) -> Callable[[], None]:
        """Record `buffers := step()` and run it once; return the function that runs it again.

        Call it within `stream`, after `step` has run once there.  Raises: RuntimeError for a step
        that no graph can hold, such as one that reads a value.
        """
        graph = self._cuda.CUDAGraph()
        # The default mode would forbid calls of other threads, such as the waits of the reader
        # thread of a feed.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        self._first = self._first or graph
        try:
            write_back(buffers, step())
        except BaseException:
            with suppress(RuntimeError):  # follows from the first error
                graph.capture_end()
            raise
        graph.capture_end()
        graph.replay()
        return graph.replay


@cache
def cuda_graphs(device: torch.device) -> CudaGraphs:
    """Return the graphs of a device; all vector envs of the process share their pool, one after the
    other.
    """
    return CudaGraphs(device)
