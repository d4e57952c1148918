"""Training batches of all envs: draws of samples, label noise, crops and mirrors.

One draw per epoch, keyed by (env, episode, epoch, minibatch); no value depends on the number of
envs.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.data.dataset import Dataset
from morphogen.data.instance_process import find_process
from morphogen.data.instances import draw_instances
from morphogen.data.splits import as_stored
from morphogen.device.transfers import StagingBuffer, Transfers
from morphogen.kernels import one_thread
from morphogen.state import rng
from morphogen.state.env import Clock, EnvState, Instance
from morphogen.state.measure import InputBatch
from morphogen.vocab.purpose import Purpose


class Draws(NamedTuple):
    """Draws for the minibatches of an epoch, leaves [M, E, B], or for one of them, leaves [E,
    B].
    """

    index: Tensor  # int64, training sample
    labels: Tensor  # int64, label in use, noise included
    row: Tensor  # int64, offset of the crop in the padded image
    column: Tensor  # int64
    mirror: Tensor | None  # bool; None without mirroring
    view: Tensor  # int64 [E], of all minibatches

    def select(self, minibatch: Tensor) -> "Draws":
        """Return the draws of a minibatch.  minibatch int64 [1], its number in the epoch."""
        index, labels, row, column = (
            leaf.index_select(0, minibatch).squeeze(0) for leaf in self[:4]
        )
        mirror = None if self.mirror is None else self.mirror.index_select(0, minibatch).squeeze(0)
        return Draws(index, labels, row, column, mirror, self.view)


class Feed:
    """Training batches drawn on the device; subclasses supply the images."""

    def __init__(self, dataset: Dataset, spec: RunSpec) -> None:
        """Set up the draws of a resolved spec."""
        task = TASKS[spec.task]
        self.spec = spec.data
        self.label_noise = spec.instance.label_noise[1] > 0
        self.process = find_process(spec)
        self.shift = task.shift if spec.data.augment else 0
        self.flip = task.flip and spec.data.augment
        self.labels = dataset.labels
        self.preparation = dataset.preparation

    def crop_images(self, draws: Draws) -> Tensor:
        """Return the cropped samples of a minibatch, as stored [E, B, *shape].  Leaves of draws [E,
        B].
        """
        raise NotImplementedError

    def fetch(self) -> None:
        """Make the images of the next minibatch ready for `batch`; the host reads no value."""

    def position(self, state: EnvState) -> tuple[Tensor, ...]:
        """Return the integers that the host has to know before an epoch, int64 [E] each."""
        return ()

    def seek(self, position: Sequence[int]) -> None:
        """Prepare the minibatches of the epoch at a position; they are requested in order, epoch
        after epoch.
        """

    def close(self) -> None:
        """Release prepared data; no minibatch is requested until the next seek."""

    def epoch(self, state: EnvState) -> Draws:
        """Return the draws of the next epoch; the host reads no value."""
        spec = self.spec
        samples = self.labels.shape[0]
        streams = (
            epoch_streams(state.key, state.clock, purpose, spec.minibatches)
            for purpose in (Purpose.DATA, Purpose.AUGMENT)
        )
        ranges = [rng.LaneRange(stream, spec.batch) for stream in streams]
        noise = rng.stream(state.key, Purpose.LABEL_NOISE, round=state.clock.episode)
        # a single sample costs four lanes
        if self.label_noise and samples <= 4 * spec.minibatches * spec.batch:
            ranges.append(rng.LaneRange(noise, samples))
        words, moves, *complete = rng.random_bits_of(ranges)
        index = sample_index(words, state.instance)
        labels = map_labels(self.labels[index], state.instance)
        if self.label_noise:
            labels = add_label_noise(labels, noise_words(noise, index, *complete), state.instance)
        side = 2 * self.shift + 1
        choice = rng.bounded_ints(moves, side**2 * (2 if self.flip else 1))
        return Draws(
            index=index,
            labels=labels,
            row=choice // side % side,
            column=choice % side,
            mirror=choice >= side * side if self.flip else None,
            view=state.instance.view_code,
        )

    def batch(self, draws: Draws, minibatch: Tensor) -> InputBatch:
        """Return the minibatch that was fetched last, by operators of the device alone.

        Shapes: draws of the epoch [M, E, B]; minibatch int64 [1], its number -> normalised samples
        float32 [E, B, *shape], labels int64 [E, B]; samples with their own answers: int64 [E, B, n]
        both.
        """
        chosen = draws.select(minibatch)
        pixels = self.crop_images(chosen)
        labels = chosen.labels
        if chosen.mirror is not None:
            mirrored = chosen.mirror.view(*pixels.shape[:2], 1, 1, 1)
            pixels = torch.where(mirrored, pixels.flip(-1), pixels)
        inputs, labels = self.preparation.prepare(pixels, labels)
        inputs = self.process.show(inputs, chosen.view, chosen.index)
        return InputBatch(
            inputs=inputs, labels=labels, batch_size=[labels.shape[0]], device=labels.device
        )


class ResidentFeed(Feed):
    """Training batches from images on the device."""

    def __init__(self, dataset: Dataset, spec: RunSpec) -> None:
        super().__init__(dataset, spec)
        self.inputs: Any = dataset.train.inputs  # in memory: no `StoredInputs`
        self.crops = crops(self.inputs, self.shift) if self.shift else None

    def crop_images(self, draws: Draws) -> Tensor:
        """Return the crop of each sample from all crops of all images, as stored [E, B, *shape]."""
        if self.crops is None:
            return self.inputs[draws.index]
        return self.crops[draws.index, :, draws.row, draws.column]


def epoch_streams(key: Tensor, clock: Clock, purpose: Purpose, minibatches: int) -> Tensor:
    """Return the random streams of all minibatches of the next epoch, int64 [M, E, 5]."""
    minibatch = torch.arange(minibatches, device=key.device).unsqueeze(-1)
    return rng.stream(key, purpose, round=clock.episode, epoch=clock.epoch, minibatch=minibatch)


def crops(pixels: Tensor, shift: int) -> Tensor:
    """Return all crops of images padded with black, as a view.  uint8 [N, C, H, W] -> [N, C, 2s+1,
    2s+1, H, W].
    """
    height, width = pixels.shape[-2:]
    padded = functional.pad(pixels, (shift,) * 4)
    return padded.unfold(2, height, 1).unfold(3, width, 1)


def sample_index(words: Tensor, instance: Instance) -> Tensor:
    """Map random words to training samples, with replacement.  words int64 [M, E, B] -> int64 [M,
    E, B].
    """
    place = rng.bounded_ints(words, instance.samples.unsqueeze(-1))
    if not instance.usable.shape[1]:
        return place
    return _row_gather(instance.usable, place).to(torch.int64)


def map_labels(labels: Tensor, instance: Instance) -> Tensor:
    """Map original labels to the labels in use of each env.  int64 [M, E, B] -> int64 [M, E, B]."""
    return _row_gather(instance.class_of, labels)


def noise_words(stream: Tensor, index: Tensor, complete: Tensor | None = None) -> Tensor:
    """Return the noise word of each sample in an episode: one of `complete`, or drawn for the
    sample alone.

    Shapes: stream int64 [E, 5]; index int64 [M, E, B]; complete int64 [E, N], words of all samples
    -> int64 [M, E, B].
    """
    return rng.random_bits_at(stream, index) if complete is None else _row_gather(complete, index)


def add_label_noise(labels: Tensor, words: Tensor, instance: Instance) -> Tensor:
    """Replace a share of the labels by another class in use, chosen uniformly.  int64 [M, E, B]."""
    limit = (instance.label_noise.double() * 2**32).to(torch.int64).unsqueeze(-1)
    classes = instance.classes.unsqueeze(-1)
    other = labels + 1 + words * (classes - 1) // limit.clamp(min=1)
    return torch.where(words < limit, other % classes, labels)


def _row_gather(rows: Tensor, index: Tensor) -> Tensor:
    """Gather `rows[e, index[m, e, b]]` per env.  rows [E, N], index int64 [M, E, B] -> [M, E,
    B].
    """
    first = torch.arange(rows.shape[0], device=rows.device).unsqueeze(-1) * rows.shape[1]
    return rows.flatten()[index + first]


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
            draw_instances, tasks, spec=spec, labels=dataset.train.labels, purpose=purpose
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
