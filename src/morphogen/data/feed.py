"""Training batches of all envs: draws of samples, label noise, crops and mirrors.

One draw per epoch, keyed by (env, episode, epoch, minibatch); no value depends on the number of envs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from morphogen.config.spec import DataSpec
from morphogen.config.task import TaskSpec
from morphogen.data.dataset import Dataset
from morphogen.state import rng
from morphogen.state.env import Clock, EnvState, Instance
from morphogen.state.measure import ImageBatch
from morphogen.vocab.purpose import Purpose


@dataclass(frozen=True, slots=True)
class EpochDraws:
    """Draws for the minibatches of an epoch; every leaf is [M, E, B]."""

    index: Tensor  # int64, training sample
    labels: Tensor  # int64, label in use, noise included
    row: Tensor  # int64, offset of the crop in the padded image
    column: Tensor  # int64
    mirror: Tensor | None  # bool; None without mirroring


class FeedPosition(NamedTuple):
    """Part of a state that determines the next samples; the host can compute it without the device."""

    key: Tensor  # int64 [E, 3]
    instance: Instance
    clock: Clock


class Feed(ABC):
    """Training batches drawn on the device; subclasses supply the images."""

    def __init__(self, dataset: Dataset, task: TaskSpec, spec: DataSpec, *, label_noise: bool = True) -> None:
        """Set up the draws; `label_noise` False leaves noise out, for runs whose instances have none."""
        self.spec, self.label_noise = spec, label_noise
        self.shift = task.shift if spec.augment else 0
        self.flip = task.flip and spec.augment
        self.labels, self.normalise = dataset.labels, dataset.normalise

    @abstractmethod
    def crop_images(self, draws: EpochDraws, minibatch: int) -> Tensor:
        """Return the cropped images of a minibatch, uint8 [E, B, C, H, W]."""

    @abstractmethod
    def start(self, episode: int, epoch: int = 0) -> None:
        """Begin or continue an episode of all envs; its minibatches are requested in order, from `epoch` on."""

    @abstractmethod
    def close(self) -> None:
        """Release what the episode holds; no minibatch is requested until the next start."""

    def epoch(self, state: EnvState | FeedPosition) -> EpochDraws:
        """Return the draws of the next epoch; the host reads no value."""
        index = epoch_index(state, self.spec)
        words = rng.random_bits(epoch_streams(state, Purpose.AUGMENT, self.spec.minibatches), self.spec.batch)
        side = 2 * self.shift + 1
        choice = rng.bounded_ints(words, side**2 * (2 if self.flip else 1))
        return EpochDraws(
            index=index,
            labels=self._labels(state, index),
            row=choice // side % side,
            column=choice % side,
            mirror=choice >= side * side if self.flip else None,
        )

    def batch(self, draws: EpochDraws, minibatch: int) -> ImageBatch:
        """Return a minibatch: normalised images float32 [E, B, C, H, W], labels int64 [E, B]."""
        pixels, labels = self.crop_images(draws, minibatch), draws.labels[minibatch]
        if draws.mirror is not None:
            mirrored = draws.mirror[minibatch].view(*pixels.shape[:2], 1, 1, 1)
            pixels = torch.where(mirrored, pixels.flip(-1), pixels)
        return ImageBatch(
            images=self.normalise(pixels), labels=labels, batch_size=[labels.shape[0]], device=labels.device
        )

    def _labels(self, state: EnvState | FeedPosition, index: Tensor) -> Tensor:
        labels = map_labels(self.labels[index], state.instance)
        if not self.label_noise:
            return labels
        stream = rng.stream(state.key, Purpose.LABEL_NOISE, round=state.clock.episode)
        return add_label_noise(labels, noise_words(stream, index, self.labels.shape[0]), state.instance)


class ResidentFeed(Feed):
    """Training batches from images on the device."""

    def __init__(self, dataset: Dataset, task: TaskSpec, spec: DataSpec, *, label_noise: bool = True) -> None:
        super().__init__(dataset, task, spec, label_noise=label_noise)
        self.crops = crops(dataset.train.pixels, self.shift)

    def start(self, episode: int, epoch: int = 0) -> None:
        """Do nothing: all images are on the device."""

    def close(self) -> None:
        """Do nothing: an episode holds no resources."""

    def crop_images(self, draws: EpochDraws, minibatch: int) -> Tensor:
        """Return the crop of each sample from all crops of all images, uint8 [E, B, C, H, W]."""
        m = minibatch
        return self.crops[draws.index[m], :, draws.row[m], draws.column[m]]


def epoch_streams(state: EnvState | FeedPosition, purpose: Purpose, minibatches: int) -> Tensor:
    """Return the random streams of all minibatches of the next epoch, int64 [M, E, 5]."""
    clock = state.clock
    minibatch = torch.arange(minibatches, device=state.key.device).unsqueeze(-1)
    return rng.stream(state.key, purpose, round=clock.episode, epoch=clock.epoch, minibatch=minibatch)


def epoch_index(state: EnvState | FeedPosition, spec: DataSpec) -> Tensor:
    """Return the sample indices of the minibatches of the next epoch, by integer arithmetic: int64 [M, E, B]."""
    words = rng.random_bits(epoch_streams(state, Purpose.DATA, spec.minibatches), spec.batch)
    return sample_index(words, state.instance)


def crops(pixels: Tensor, shift: int) -> Tensor:
    """Return all crops of images padded with black, as a view.  uint8 [N, C, H, W] -> [N, C, 2s+1, 2s+1, H, W]."""
    height, width = pixels.shape[-2:]
    padded = functional.pad(pixels, (shift,) * 4)
    return padded.unfold(2, height, 1).unfold(3, width, 1)


def sample_index(words: Tensor, instance: Instance) -> Tensor:
    """Map random words to training samples, with replacement.  words int64 [M, E, B] -> int64 [M, E, B]."""
    place = rng.bounded_ints(words, instance.samples.unsqueeze(-1))
    if not instance.usable.shape[1]:
        return place
    return _row_gather(instance.usable, place).to(torch.int64)


def map_labels(labels: Tensor, instance: Instance) -> Tensor:
    """Map original labels to the labels in use of each env.  int64 [M, E, B] -> int64 [M, E, B]."""
    return _row_gather(instance.class_of, labels)


def noise_words(stream: Tensor, index: Tensor, count: int) -> Tensor:
    """Return the noise word of each sample in an episode.  stream [E, 5], index [M, E, B] -> int64 [M, E, B].

    A single sample costs a block of four lanes, so a small data set is cheaper to draw completely.
    """
    if count <= 4 * index.shape[0] * index.shape[2]:
        return _row_gather(rng.random_bits(stream, count), index)
    return rng.random_bits_at(stream, index)


def add_label_noise(labels: Tensor, words: Tensor, instance: Instance) -> Tensor:
    """Replace a share of the labels by another class in use, chosen uniformly.  int64 [M, E, B]."""
    limit = (instance.label_noise.double() * 2**32).to(torch.int64).unsqueeze(-1)
    classes = instance.classes.unsqueeze(-1)
    other = labels + 1 + words * (classes - 1) // limit.clamp(min=1)
    return torch.where(words < limit, other % classes, labels)


def _row_gather(rows: Tensor, index: Tensor) -> Tensor:
    """Gather `rows[e, index[m, e, b]]` per env.  rows [E, N], index int64 [M, E, B] -> [M, E, B]."""
    first = torch.arange(rows.shape[0], device=rows.device).unsqueeze(-1) * rows.shape[1]
    return rows.flatten()[index + first]
