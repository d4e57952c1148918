"""Transfers between host and device: one table, one ledger, and the only code that waits for the
device.

A transfer packs its leaves into one buffer of bytes on the device and copies the buffer once.  A
CPU has the same code path and ledger with plain buffers.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Fence:
    """One declared transfer.  `per`: its frequency; `waits`: the host waits at once for its
    end, else later if at all, when the transfer has usually ended.
    """

    direction: str
    per: str
    waits: bool
    reason: str


FENCES: dict[str, Fence] = {
    "plan": Fence(
        "device -> host", "epoch", True, "sizes of the groups that train and of the ablation tree"
    ),
    "record": Fence("device -> host", "epoch", False, "values for telemetry, read one epoch later"),
    "update": Fence("device -> host", "round", True, "metrics of the policy update"),
    "batch": Fence("host -> device", "minibatch", False, "images of streamed data, prefetched"),
    "checkpoint": Fence("device -> host", "save", True, "the state, for crash safety"),
    "result": Fence("device -> host", "evaluation", True, "reported numbers"),
    "networks": Fence("device -> host", "evaluation", True, "networks that a run keeps"),
    "actions": Fence(
        "host -> device", "step of a caller", False, "actions of a caller that computes on the host"
    ),
    "arrays": Fence(
        "device -> host", "step of a caller", True, "observations and rewards for such a caller"
    ),
}


HOST_KINDS = ("cpu", "meta")  # devices without streams
NO_DTYPES: Mapping[str, torch.dtype] = {}


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Layout of leaves in a buffer: names, dtypes, shapes; widest items first, so that all are
    aligned.
    """

    leaves: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    @classmethod
    def of(
        cls, leaves: Mapping[str, Tensor], stored: Mapping[str, torch.dtype] = NO_DTYPES
    ) -> "BufferLayout":
        """Lay out leaves by name, in their dtypes or the dtypes of `stored`."""
        rows = [(name, stored.get(name, leaf.dtype), leaf.shape) for name, leaf in leaves.items()]
        return _buffer_layout(tuple(rows))

    @property
    def size(self) -> int:
        """Size of the buffer in bytes."""
        return sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in self.leaves)

    def pack(self, leaves: Mapping[str, Tensor], out: Tensor) -> None:
        """Write the leaves into `out`, uint8 [size]; all leaves of a dtype are cast at once."""
        kinds = groupby(self.leaves, key=itemgetter(1))
        parts = [
            torch.cat([leaves[name].flatten() for name, _, _ in kind]).to(dtype)
            for dtype, kind in kinds
        ]
        torch.cat([part.view(torch.uint8) for part in parts], out=out)

    def unpack(self, buffer: Tensor) -> dict[str, np.ndarray]:
        """Read a buffer on the host into copied arrays."""
        row = np.ndarray((), _row_dtype(self.leaves), buffer.numpy().tobytes())
        return {name: row[name] for name, _, _ in self.leaves}


@cache
def _buffer_layout(leaves: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> BufferLayout:
    return BufferLayout(
        tuple(sorted(leaves, key=lambda leaf: (-leaf[1].itemsize, str(leaf[1]), leaf[0])))
    )


@cache
def _row_dtype(leaves: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> np.dtype:
    """Return the dtype of an entire buffer, with a field per leaf."""
    return np.dtype(
        [
            (name, torch.empty(0, dtype=dtype, device="cpu").numpy().dtype, shape)
            for name, dtype, shape in leaves
        ]
    )


def flatten_names(tree: TensorDictBase | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the leaves of a flat or nested tree by name; nested names are joined by dots."""
    if isinstance(tree, dict):
        return tree
    nodes: Any = tree
    return {
        key if isinstance(key, str) else ".".join(key): leaf
        for key, leaf in nodes.items(True, True)
    }


class _InOrder:
    """Streams and events of a CPU, where everything is complete at once."""

    def _itself(self, *_: Any) -> "_InOrder":
        return self

    Event = Stream = current_stream = _itself
    record = wait_event = synchronize = _itself

    def stream(self, _: Any) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()


_IN_ORDER = _InOrder()


def _accelerator(device: torch.device) -> Any:
    """Return the module of streams and events of a device, such as `torch.cuda`."""
    return _IN_ORDER if device.type in HOST_KINDS else torch.get_device_module(device)


class StagingBuffer:
    """One buffer on the device, its pinned copy on the host, and the events between them.

    `ready_event`: the source is complete; `done_event`: the copy is complete, or an uploaded buffer
    was read.
    """

    def __init__(self, layout: BufferLayout, device: torch.device) -> None:
        self.device_bytes = torch.empty(layout.size, dtype=torch.uint8, device=device)
        pinned = device.type not in HOST_KINDS
        self.host_bytes = torch.empty(
            layout.size, dtype=torch.uint8, pin_memory=pinned, device="cpu"
        )
        self.ready_event = _accelerator(device).Event()
        self.done_event = _accelerator(device).Event()
        self.layout = layout


class Transfers:
    """Transfers of one scheduler, counted and timed."""

    def __init__(self, device: torch.device, clock: Callable[[], float]) -> None:
        self.device = device
        self.ledger = dict.fromkeys(FENCES, 0)
        self.wait_s = dict.fromkeys(FENCES, 0.0)
        self._clock = clock
        self._buffers: dict[tuple[str, int], StagingBuffer] = {}
        self._accelerator = _accelerator(device)
        self._download_stream = self._accelerator.Stream(device)
        self._upload_stream = self._accelerator.Stream(device)

    @property
    def total_wait_s(self) -> float:
        """Seconds so far in the transfers for which the host waits."""
        return sum(self.wait_s[name] for name, fence in FENCES.items() if fence.waits)

    def read_counts(self, counts: Tensor) -> list[int]:
        """Read the sizes of the next epoch.  counts int32 [L]; waits."""
        return self.read("plan", {"counts": counts})["counts"].tolist()

    def send(
        self,
        name: str,
        tree: TensorDictBase | Mapping[str, Tensor],
        slot: int = 0,
        stored: Mapping[str, torch.dtype] = NO_DTYPES,
    ) -> None:
        """Start the copy of a tree to the host; never waits.  stored: dtypes of leaves on the host,
        if others.
        """
        self.ledger[name] += 1
        leaves = flatten_names(tree)
        buffer = self._buffer(name, BufferLayout.of(leaves, stored), slot)
        stream = self._accelerator.current_stream(self.device)
        stream.wait_event(buffer.done_event)  # the slot may be in transfer
        buffer.layout.pack(leaves, buffer.device_bytes)
        buffer.ready_event.record(stream)
        with self._accelerator.stream(self._download_stream):
            self._download_stream.wait_event(buffer.ready_event)
            buffer.host_bytes.copy_(buffer.device_bytes, non_blocking=True)
            buffer.done_event.record(self._download_stream)

    def receive(self, name: str, slot: int = 0) -> dict[str, np.ndarray]:
        """Return the last tree sent in this slot, as arrays on the host; waits for the copy."""
        buffer = self._buffers[name, slot]
        started = self._clock()
        buffer.done_event.synchronize()
        self.wait_s[name] += self._clock() - started
        return buffer.layout.unpack(buffer.host_bytes)

    def read(self, name: str, tree: TensorDictBase | Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Send and receive at once; waits."""
        self.send(name, tree)
        return self.receive(name)

    def upload(self, name: str, array: np.ndarray) -> Tensor:
        """Copy an array to the device; the host does not wait."""
        self.ledger[name] += 1
        return torch.as_tensor(array, device="cpu").to(self.device, non_blocking=True)

    def prefetch_buffers(
        self, shape: tuple[int, ...], dtype: torch.dtype, depth: int
    ) -> tuple[StagingBuffer, ...]:
        """Return the staging buffers of minibatches [*shape], allocated once."""
        layout = BufferLayout((("images", dtype, shape),))
        buffers = tuple(self._buffer("batch", layout, slot) for slot in range(depth))
        for buffer in buffers:
            self._record_done(buffer)  # earlier uses of the memory precede this event
        return buffers

    def fill(self, buffer: StagingBuffer, write: Callable[[Tensor], None]) -> None:
        """Fill a buffer that the device has read, and start the copy; for a thread that may
        wait.
        """
        buffer.done_event.synchronize()
        write(buffer.host_bytes)
        with self._accelerator.stream(self._upload_stream):
            buffer.device_bytes.copy_(buffer.host_bytes, non_blocking=True)
            buffer.ready_event.record(self._upload_stream)

    @contextmanager
    def receive_batch(self, next_buffer: Callable[[], StagingBuffer]) -> Iterator[StagingBuffer]:
        """Yield the next filled buffer; the device waits for the copy, the host does not.  Reads
        end with the block.
        """
        started = self._clock()
        buffer = next_buffer()
        self.wait_s["batch"] += self._clock() - started
        self.ledger["batch"] += 1
        self._accelerator.current_stream(self.device).wait_event(buffer.ready_event)
        yield buffer
        self._record_done(buffer)

    def _record_done(self, buffer: StagingBuffer) -> None:
        """Record that the device has read the buffer at this point."""
        buffer.done_event.record(self._accelerator.current_stream(self.device))

    def fetch_state(self, tree: TensorDictBase, name: str = "checkpoint") -> TensorDictBase:
        """Return a tree on the host, which may share memory; waits."""
        self.ledger[name] += 1
        started = self._clock()
        copy = tree.detach().to("cpu", non_blocking=False)  # the memory is not pinned
        self.wait_s[name] += self._clock() - started
        return copy

    def _buffer(self, name: str, layout: BufferLayout, slot: int) -> StagingBuffer:
        buffer = self._buffers.get((name, slot))
        if buffer is None or buffer.layout != layout:
            buffer = self._buffers[name, slot] = StagingBuffer(layout, self.device)
        return buffer
