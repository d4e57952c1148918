"""Streamed training batches: read ahead from the CPU by a thread."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.data.dataset import Dataset
from morphogen.data.feed import Draws, Feed, crops, epoch_streams, sample_index
from morphogen.data.instances import draw_instances
from morphogen.data.splits import DerivedInputs, Inputs, StoredInputs
from morphogen.device.transfers import StagingBuffer, Transfers
from morphogen.kernels import one_thread
from morphogen.state import rng
from morphogen.state.env import Clock, EnvState
from morphogen.vocab.purpose import Purpose


def as_stored(inputs: Inputs) -> StoredInputs | DerivedInputs:
    """Return inputs in memory as `StoredInputs`; inputs that are read on demand unchanged."""
    return (
        StoredInputs((inputs,), torch.arange(len(inputs), device="cpu"))
        if isinstance(inputs, Tensor)
        else inputs
    )


class StreamedFeed(Feed):
    """Training batches of one vector env, through `data.prefetch + 1` staging buffers.

    An epoch is read piece by piece (`env.pieces`): all minibatches of the first envs, then all of
    the next ones.
    """

    def __init__(
        self,
        dataset: Dataset,
        spec: RunSpec,
        *,
        transfers: Transfers,
        key: Tensor,
        tasks: Tensor,
        purpose: Purpose,
        pieces: tuple[slice, ...],
    ) -> None:
        """Set up a feed; key and tasks int64 [E, 3] on the host; instances are drawn from `tasks`
        for `purpose`.
        """
        super().__init__(dataset, spec)
        largest = max(rows.stop - rows.start for rows in pieces)
        self._images = as_stored(dataset.train.inputs)
        self._transfers = transfers
        self._shape = (largest * spec.data.batch, *dataset.train.inputs.shape[1:])
        self._buffers = transfers.prefetch_buffers(
            self._shape, self._images.dtype, spec.data.prefetch + 1
        )
        self._positions = torch.arange(self._shape[0], device=transfers.device)
        self._fetched = torch.empty(self._shape, dtype=self._images.dtype, device=transfers.device)
        self._draw = partial(
            draw_instances,
            tasks,
            spec=spec,
            labels=dataset.train.labels,
            purpose=purpose,
            criterion=dataset.criterion,
        )
        self._key = key
        self._pieces = pieces
        self._epoch_minibatches = len(pieces) * spec.data.minibatches
        self._reader: ThreadPoolExecutor | None = None
        self._upcoming: Iterator[Tensor] = iter(())
        self._filling: deque[Future[StagingBuffer | None]] = deque()
        self._length = spec.episode_length
        self._start: tuple[int, ...] = ()
        self._taken = 0  # minibatches since the start

    def position(self, state: EnvState) -> tuple[Tensor, ...]:
        """Return episode and epoch of every env."""
        return state.clock.episode, state.clock.epoch

    def seek(self, position: Sequence[int]) -> None:
        """Prefetch from an epoch on, unless it is the one that is prefetched next.  position:
        episodes, then epochs.
        """
        envs = len(position) // 2
        epochs, rest = divmod(self._taken, self._epoch_minibatches)
        reached = (*self._start[:envs], *(epoch + epochs for epoch in self._start[envs:]))
        ended = min(reached[envs:], default=0) >= self._length
        if self._reader is not None and tuple(position) == reached and not rest and not ended:
            return
        self.close()
        self._start = tuple(position)
        self._taken = 0
        self._upcoming = self._indices(torch.tensor(self._start, device="cpu").view(2, envs))
        self._reader = ThreadPoolExecutor(1, "batches")
        self._filling.extend(self._reader.submit(self._fill, buffer) for buffer in self._buffers)

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)
        self._reader = None
        self._filling.clear()

    def fetch(self) -> None:
        """Copy the next prefetched images to the place on the device where `batch` reads them."""
        if self._reader is None:
            raise RuntimeError("no minibatch is prefetched: call seek before an epoch")
        with self._transfers.receive_batch(self._next_filled) as buffer:
            self._fetched.copy_(buffer.device_bytes.view(self._images.dtype).view(self._shape))
        self._filling.popleft()
        self._filling.append(self._reader.submit(self._fill, buffer))
        self._taken += 1

    def _next_filled(self) -> StagingBuffer:
        buffer = self._filling[0].result()
        if buffer is None:
            raise RuntimeError(
                "all minibatches of the episode are read: call seek for the next one"
            )
        return buffer

    def _fill(self, buffer: StagingBuffer) -> StagingBuffer | None:
        """Read the images of the next minibatch into a buffer; None after the last one.  Runs in
        the thread.
        """
        # more threads would wait for work, and keep the training ones from theirs
        with one_thread(torch.device("cpu")):
            index = next(self._upcoming, None)
            if index is None:
                return None
            self._transfers.fill(buffer, partial(self._read_images, index))
        return buffer

    def _read_images(self, index: Tensor, out: Tensor) -> None:
        self._images.read(index, out.view(self._images.dtype).view(self._shape)[: len(index)])

    def _indices(self, start: Tensor) -> Iterator[Tensor]:
        """Yield the sample indices of the minibatches until every env has ended its episode: int64
        [n B] each.  start int64 [2, E]: episode and first epoch.
        """
        episode, epoch = start
        instance = self._draw(episode, epoch)
        for later in range(max(1, self._length - int(epoch.min()))):
            clock = Clock(episode=episode, epoch=epoch + later, batch_size=[len(episode)])
            if self.process.changes:
                instance = self._draw(episode, clock.epoch)
            streams = epoch_streams(self._key, clock, Purpose.DATA, self.spec.minibatches)
            index = sample_index(rng.random_bits(streams, self.spec.batch), instance)
            for rows in self._pieces:
                yield from index[:, rows].flatten(1)

    def crop_images(self, draws: Draws) -> Tensor:
        """Return the crop of each fetched sample, as stored [E, B, *shape]."""
        positions = self._positions[: draws.row.numel()].view(draws.row.shape)
        if not self.shift:
            return self._fetched[positions]
        return crops(self._fetched, self.shift)[positions, :, draws.row, draws.column]
