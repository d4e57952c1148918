"""Graphs of a CUDA device: the order of calls on a stand-in for `torch.cuda`, and the real thing
where there is one.
"""

import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from morphogen.device.graphs import CudaGraphs, write_back
from morphogen.env.capture import Capture
from morphogen.state.loops import repeat

DEVICE = torch.device("cuda")


class RecordedCuda:
    """Stand-in for `torch.cuda` that lists its calls; `failures` of the end of a capture.

    As in torch, a pool ends with the last of its graphs and refuses another one.
    """

    def __init__(self, failures=()):
        self.calls, self.failures, self.pools = [], list(failures), []
        self.graphs = weakref.WeakSet()
        self.current = self.Stream("main")

    def Stream(self, name):
        wait = lambda other: self.calls.append(f"{name} waits for {other.name}")
        return SimpleNamespace(name=name, wait_stream=wait)

    def graph_pool_handle(self):
        self.calls.append("pool")
        return (0, 7)

    def current_stream(self, device):
        return self.current

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def CUDAGraph(self):
        return RecordedGraph(self)


class RecordedGraph:
    """Graph of that stand-in."""

    def __init__(self, cuda):
        self.cuda = cuda

    def capture_begin(self, *, pool, capture_error_mode):
        assert self.cuda.graphs or pool not in self.cuda.pools, "the pool has ended"
        self.cuda.graphs.add(self)
        self.cuda.pools.append(pool)
        self.cuda.calls.append(f"begin on {self.cuda.current.name}, {capture_error_mode}")

    def capture_end(self):
        self.cuda.calls.append("end")
        if self.cuda.failures:
            raise RuntimeError(self.cuda.failures.pop())

    def replay(self):
        self.cuda.calls.append("replay")


def test_a_loop_is_recorded_once_on_its_own_stream_and_then_replayed():
    cuda = RecordedCuda()
    capture = Capture(CudaGraphs("side", cuda))
    for _ in range(2):
        capture.repeat(lambda x: x + 1, torch.zeros(1), 4)
    loop = [
        "side waits for main",
        "begin on side, thread_local",
        "end",
        *["replay"] * 3,
        "main waits for side",
    ]
    assert cuda.calls == ["pool", *loop, *loop]
    assert cuda.pools == [(0, 7)] * 2


def test_a_failed_capture_ends_and_the_first_error_is_the_reason():
    cuda = RecordedCuda(failures=["capture invalidated"])
    capture = Capture(CudaGraphs("side", cuda))
    numbers = iter(range(9))

    def body(x):
        if next(numbers) == 1:
            raise RuntimeError("operation not permitted when stream is capturing\nsecond line")
        return x + 1

    with pytest.warns(RuntimeWarning, match=r"not permitted when stream is capturing$"):
        assert capture.repeat(body, torch.zeros(1), 5).tolist() == [5]
    assert cuda.calls[-2:] == ["end", "main waits for side"]
    assert cuda.current.name == "main"
    assert (capture.recorded, capture.fallbacks) == (0, 1)


def test_values_that_are_views_of_buffers_are_read_before_any_buffer_is_written():
    memory = torch.arange(4.0)
    buffers = {"low": memory[:2], "high": memory[2:]}
    write_back(buffers, {"low": memory[2:], "high": memory[:2] * 1})
    assert memory.tolist() == [2, 3, 0, 1]


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device; this machine has none"
)
def test_replays_on_a_device_compute_what_the_loop_computes():
    start, factor = torch.randn(64, device=DEVICE), torch.rand(64, device=DEVICE)
    body = lambda x: (x * factor).sin() + x.roll(1)
    capture = Capture(CudaGraphs(DEVICE))
    for times in (4, 9):
        assert torch.equal(capture.repeat(body, start, times), repeat(body, start, times))
    assert (capture.recorded, capture.fallbacks) == (2, 0)
