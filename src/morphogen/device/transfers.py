"""Every crossing between host and device: one table, one ledger, and the only code that waits or reads.

A crossing packs its leaves into one buffer of bytes on the device, so that each is one copy whatever the number of
leaves.  On a CPU the same objects exist with plain buffers: same code path, same ledger.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Fence:
    """One declared crossing.  `per`: how often; `waits`: the host stands still until it is done."""

    direction: str
    per: str
    waits: bool
    reason: str


FENCES: dict[str, Fence] = {
    "plan": Fence("device -> host", "epoch", True, "sizes of the groups that train and of the ablation tree"),
    "record": Fence("device -> host", "epoch", False, "what happened, read one epoch later"),
    "update": Fence("device -> host", "round", True, "metrics of the policy update"),
    "batch": Fence("host -> device", "minibatch", False, "images of streamed data, copied ahead of their use"),
    "checkpoint": Fence("device -> host", "save", True, "the state, for crash safety"),
    "result": Fence("device -> host", "evaluation", True, "reported numbers"),
}


def expected_ledger(
    *, rounds: int, epochs: int, streamed: int = 0, evaluated_epochs: int = 0, evaluations: int = 0, saves: int = 0
) -> dict:
    """The ledger that the table promises for a run: name -> crossings.  Independent of envs and slots.

    `streamed`: minibatches per epoch where the data is streamed, 0 where it is resident.
    """
    return {
        "plan": rounds * epochs + evaluated_epochs,
        "record": rounds * epochs,
        "update": rounds,
        "batch": (rounds * epochs + evaluated_epochs) * streamed,
        "checkpoint": saves,
        "result": evaluations,
    }


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Layout of leaves in a buffer: names, dtypes, shapes; widest items first, so that all are aligned."""

    leaves: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    @classmethod
    def from_tree(cls, tree: TensorDictBase) -> "BufferLayout":
        """The packing of a flat or nested tree; nested names are joined by dots."""
        return _buffer_layout(
            tuple([(_dotted_name(key), leaf.dtype, tuple(leaf.shape)) for key, leaf in tree.items(True, True)])
        )

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in self.leaves)

    def pack(self, tree: TensorDictBase, out: Tensor) -> None:
        """Write the leaves into `out`, uint8 [size]."""
        named = {_dotted_name(key): leaf for key, leaf in tree.items(True, True)}
        kinds = groupby(self.leaves, key=lambda leaf: leaf[1])
        same = [torch.cat([named[name].reshape(-1) for name, _, _ in leaves]) for _, leaves in kinds]
        torch.cat([part.view(torch.uint8) for part in same], out=out)

    def unpack(self, buffer: Tensor) -> dict[str, np.ndarray]:
        """Read a buffer on the host; the arrays are copies."""
        raw, at, out = buffer.numpy().tobytes(), 0, {}
        for name, dtype, shape in self.leaves:
            count = math.prod(shape)
            out[name] = np.frombuffer(raw, _numpy_dtype(dtype), count, at).reshape(shape)
            at += dtype.itemsize * count
        return out


@cache
def _buffer_layout(leaves: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> BufferLayout:
    return BufferLayout(tuple(sorted(leaves, key=lambda leaf: (-leaf[1].itemsize, str(leaf[1]), leaf[0]))))


@cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _dotted_name(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else ".".join(key)


class StagingBuffer:
    """One staging buffer on the device, its pinned copy on the host, and the events between them.

    `ready`: what is to be copied is there; `done`: it was copied, or, of what came to the device, read there.
    """

    def __init__(self, layout: BufferLayout, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.device_bytes = torch.empty(layout.size, dtype=torch.uint8, device=device)
        self.host_bytes = torch.empty(layout.size, dtype=torch.uint8, pin_memory=cuda)
        self.ready_event, self.done_event = (torch.cuda.Event(), torch.cuda.Event()) if cuda else (None, None)
        self.layout = layout


class Transfers:
    """The crossings of one scheduler, counted and timed."""

    def __init__(self, device: torch.device, clock: Callable[[], float]) -> None:
        self.device = device
        self.ledger = dict.fromkeys(FENCES, 0)
        self.wait_s = dict.fromkeys(FENCES, 0.0)
        self._clock = clock
        self._buffers: dict[tuple[str, int], StagingBuffer] = {}
        self._prefetch: dict[tuple[tuple[int, ...], int], tuple[StagingBuffer, ...]] = {}
        self._download_stream, self._upload_stream = (
            torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(2)
        )

    @property
    def total_wait_s(self) -> float:
        """Seconds so far in the fences at which the host stands still."""
        return sum(self.wait_s[name] for name, fence in FENCES.items() if fence.waits)

    def read_counts(self, counts: Tensor) -> list[int]:
        """The sizes of the coming epoch.  counts int32 [L]; waits."""
        return self.read("plan", TensorDict({"counts": counts}, batch_size=[]))["counts"].tolist()

    def send(self, name: str, tree: TensorDictBase, slot: int = 0) -> None:
        """Start the copy of a tree to the host; never waits."""
        self.ledger[name] += 1
        lane = self._buffer(name, tree, slot)
        if lane.done_event is not None and self._download_stream is not None:
            torch.cuda.current_stream(self.device).wait_event(lane.done_event)  # the slot may still be on its way
        lane.layout.pack(tree, lane.device_bytes)
        if lane.ready_event is not None:
            lane.ready_event.record(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._download_stream) if self._download_stream is not None else nullcontext():
            if self._download_stream is not None and lane.ready_event is not None:
                self._download_stream.wait_event(lane.ready_event)
            lane.host_bytes.copy_(lane.device_bytes, non_blocking=True)
            if lane.done_event is not None:
                lane.done_event.record(self._download_stream)

    def receive(self, name: str, slot: int = 0) -> dict[str, np.ndarray]:
        """The tree sent last in this slot, as arrays on the host; waits for its copy."""
        lane = self._buffers[name, slot]
        started = self._clock()
        if lane.done_event is not None:
            lane.done_event.synchronize()
        self.wait_s[name] += self._clock() - started
        return lane.layout.unpack(lane.host_bytes)

    def read(self, name: str, tree: TensorDictBase) -> dict[str, np.ndarray]:
        """Send and receive at once; waits."""
        self.send(name, tree)
        return self.receive(name)

    def prefetch_buffers(self, shape: tuple[int, ...], depth: int) -> tuple[StagingBuffer, ...]:
        """Lanes for minibatches uint8 [*shape] on their way to the device, made once."""
        if (shape, depth) not in self._prefetch:
            packing = BufferLayout((("images", torch.uint8, shape),))
            self._prefetch[shape, depth] = tuple(StagingBuffer(packing, self.device) for _ in range(depth))
            for lane in self._prefetch[shape, depth]:
                self._record_done(lane)  # what the memory was used for before is over
        return self._prefetch[shape, depth]

    def fill(self, buffer: StagingBuffer, write: Callable[[Tensor], None]) -> None:
        """Fill a lane once the device has read what it held, and start the copy; for a thread that may wait."""
        if buffer.done_event is not None:
            buffer.done_event.synchronize()
        write(buffer.host_bytes)
        with torch.cuda.stream(self._upload_stream) if self._upload_stream is not None else nullcontext():
            buffer.device_bytes.copy_(buffer.host_bytes, non_blocking=True)
            if buffer.ready_event is not None:
                buffer.ready_event.record(self._upload_stream)

    @contextmanager
    def receive_batch(self, next_buffer: Callable[[], StagingBuffer]) -> Iterator[StagingBuffer]:
        """The lane that arrives next, to be read inside the block; the device waits for its copy, the host does not."""
        started = self._clock()
        lane = next_buffer()
        self.wait_s["batch"] += self._clock() - started
        self.ledger["batch"] += 1
        if lane.ready_event is not None:
            torch.cuda.current_stream(self.device).wait_event(lane.ready_event)
        yield lane
        self._record_done(lane)

    def _record_done(self, buffer: StagingBuffer) -> None:
        """Record that the device has read the buffer at this point."""
        if buffer.done_event is not None:
            buffer.done_event.record(torch.cuda.current_stream(self.device))

    def fetch_state(self, tree: TensorDictBase) -> TensorDictBase:
        """A state on the host, for a checkpoint, which may share memory with it; waits."""
        self.ledger["checkpoint"] += 1
        started = self._clock()
        copy = tree.detach().cpu()
        self.wait_s["checkpoint"] += self._clock() - started
        return copy

    def _buffer(self, name: str, tree: TensorDictBase, slot: int) -> StagingBuffer:
        packing = BufferLayout.from_tree(tree)
        lane = self._buffers.get((name, slot))
        if lane is None or lane.layout != packing:
            lane = self._buffers[name, slot] = StagingBuffer(packing, self.device)
        return lane
