"""Data set of a run: stored bytes, normalised on reading, on the device or streamed to it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from morphogen.config.groups import AUTO, RESIDENT, STREAMED, DataSpec
from morphogen.config.task import TaskSpec
from morphogen.data.cifar import read_cifar
from morphogen.data.splits import Samples, Splits, fingerprint, read_digits
from morphogen.errors import ConfigError, DataError
from morphogen.state.measure import LabelledImages
from morphogen.state.tree_ops import constant_table

FOLDER_VARIABLE, FOLDER = "MORPHOGEN_DATA", "data"
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Map from bytes to network inputs, per channel: `(byte / scale - mean) / std`."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the network inputs of pixels.  uint8 [..., C, H, W] -> float32 [..., C, H, W]."""
        gain = tuple(1 / (self.scale * std) for std in self.std)
        offset = tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))
        return pixels.to(torch.float32) * _channels(gain, pixels) + _channels(offset, pixels)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits: training as stored, validation normalised for scoring; original labels.

    All tensors reside on one device, except the training images of streamed data, which stay on the host.
    """

    placement: str  # resident or streamed
    train: Samples  # on the host if streamed
    labels: Tensor  # of the training split, int64 [N], on the device
    normalise: Normalisation
    fingerprint: str  # sha256 of the stored bytes
    sizes: dict[str, int]
    _validation: LabelledImages
    _test: Samples

    def validation(self) -> LabelledImages:
        """Return the samples on which every env is scored after every epoch."""
        return self._validation

    def on_test_split(self) -> "Dataset":
        """Return the data set with the complete test split for scoring, which only reports use."""
        return replace(self, _validation=_build_split(self._test, self.normalise))


def open_dataset(task: TaskSpec, spec: DataSpec, device: torch.device | str) -> Dataset:
    """Return the data set of a task on a device.

    Raises: DataError if files are missing or damaged; ConfigError if the placement or the sample count is impossible.
    """
    splits = read_splits(task, spec)
    normalise = Normalisation(task.scale, task.mean, task.std)
    shape = tuple(splits.train.pixels.shape[1:])
    expected = (task.host.channels_in, task.host.size, task.host.size)
    if shape != expected or not len(splits.train):
        raise DataError(
            f"{task.dataset}: expected training images of shape {expected}, got {len(splits.train)} of shape {shape}"
        )
    available = len(splits.validation)
    limit = task.val_samples if spec.val_samples == "task" else spec.val_samples
    count = available if limit is None else int(limit)
    if count > available:
        raise ConfigError(
            f"data.val_samples: expected at most {available}, the size of the validation split, got {count}"
        )
    placement = choose_placement(splits, spec)
    train = splits.train if placement == STREAMED else splits.train.to(device)
    return Dataset(
        placement=placement,
        train=train,
        labels=train.labels.to(device),
        normalise=normalise,
        fingerprint=fingerprint(splits),
        sizes={"train": len(splits.train), "validation": count, "test": len(splits.test)},
        _validation=_build_split(splits.validation.select(torch.arange(count)).to(device), normalise),
        _test=splits.test.to(device),
    )


def read_splits(task: TaskSpec, spec: DataSpec) -> Splits:
    """Return the stored samples of the data set of a task, on the CPU."""
    if task.dataset == "digits":
        return read_digits()
    if task.dataset == "cifar":
        return read_cifar(data_folder(spec))
    raise ConfigError(f"data set of task {task.name}: expected digits or cifar, got {task.dataset!r}")


def choose_placement(splits: Splits, spec: DataSpec) -> str:
    """Return the placement of the training split, resident or streamed: `data.placement`, or by size if auto."""
    need = sum(samples.size for samples in (splits.train, splits.validation, splits.test)) / GIB
    fits = need <= spec.resident_limit_gib
    if spec.placement == RESIDENT and not fits:
        raise ConfigError(
            f"data.placement: expected {STREAMED} or {AUTO}, got {RESIDENT}: the data needs {need:.3g} GiB, and "
            f"data.resident_limit_gib is {spec.resident_limit_gib:g}"
        )
    if spec.placement == AUTO:
        return RESIDENT if fits else STREAMED
    return spec.placement


def data_folder(spec: DataSpec) -> Path:
    """Return the folder of data files: `data.dir`, else $MORPHOGEN_DATA, else `./data`."""
    return Path(spec.dir or os.environ.get(FOLDER_VARIABLE) or FOLDER)


def _channels(values: tuple[float, ...], like: Tensor) -> Tensor:
    return constant_table(values, torch.float32, like.device).view(-1, 1, 1)


def _build_split(samples: Samples, normalise: Normalisation) -> LabelledImages:
    return LabelledImages(
        images=normalise(samples.pixels), labels=samples.labels, batch_size=[], device=samples.labels.device
    )
