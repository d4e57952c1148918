"""Training batches of all envs: draws of samples, label noise, crops and mirrors.

One draw per epoch, keyed by (env, episode, epoch, minibatch); no value depends on the number of
envs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.data.dataset import Dataset
from morphogen.data.instance_process import find_process
from morphogen.state import rng
from morphogen.state.env import Clock, EnvState, Instance
from morphogen.state.measure import InputBatch
from morphogen.vocab.purpose import Purpose


class Draws(NamedTuple):
    """Draws for the minibatches of an epoch, leaves [M, E, B], or for one of them, leaves [E,
    B].
    """

    index: Tensor  # int64, training sample
    labels: Tensor  # int64, label in use, noise included; other targets [M, E, B, ...]
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


class Feed(ABC):
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
        self.labelled = dataset.criterion.labelled
        self.preparation = dataset.preparation

    @abstractmethod
    def crop_images(self, draws: Draws) -> Tensor:
        """Return the cropped samples of a minibatch, as stored [E, B, *shape].  Leaves of draws [E,
        B].
        """

    def fetch(self) -> None:  # noqa: B027  (resident data is always ready)
        """Make the images of the next minibatch ready for `batch`; the host reads no value."""

    def position(self, state: EnvState) -> tuple[Tensor, ...]:
        """Return the integers that the host has to know before an epoch, int64 [E] each."""
        return ()

    def seek(self, position: Sequence[int]) -> None:  # noqa: B027
        """Prepare the minibatches of the epoch at a position; they are requested in order, epoch
        after epoch.
        """

    def close(self) -> None:  # noqa: B027
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
        # drawn together, because a single sample costs four lanes
        if self.label_noise and samples <= 4 * spec.minibatches * spec.batch:
            ranges.append(rng.LaneRange(noise, samples))
        words, moves, *complete = rng.random_bits_of(ranges)
        index = sample_index(words, state.instance)
        labels = self.labels[index]
        if self.labelled:
            labels = map_labels(labels, state.instance)
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
