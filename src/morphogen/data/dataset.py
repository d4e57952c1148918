"""A data set as a run sees it: bytes as stored, normalised where they are read, on the device or streamed to it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from morphogen.config.groups import AUTO, RESIDENT, STREAMED
from morphogen.config.spec import DataSpec
from morphogen.config.task import TaskSpec
from morphogen.data.cifar import read_cifar
from morphogen.data.digits import read_digits
from morphogen.data.splits import Samples, Splits, fingerprint
from morphogen.errors import ConfigError, DataError
from morphogen.state.measure import LabelledImages
from morphogen.state.tree_ops import constant_table

FOLDER_VARIABLE, FOLDER = "MORPHOGEN_DATA", "data"
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Bytes to network inputs, per channel: `(byte / scale - mean) / std`."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Pixels uint8 [..., C, H, W] -> float32."""
        gain = tuple(1 / (self.scale * std) for std in self.std)
        offset = tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))
        return pixels.to(torch.float32) * _channels(gain, pixels) + _channels(offset, pixels)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits, `train` as stored; validation and test ready to be judged on, labels original.

    All of it is on one device but the training images of streamed data, which stay on the host.
    """

    placement: str  # resident or streamed
    train: Samples  # where it is streamed: on the host
    labels: Tensor  # of the training split, int64 [N], on the device
    normalise: Normalisation
    fingerprint: str  # sha256 of the stored bytes
    sizes: dict[str, int]
    _validation: LabelledImages
    _test: Samples

    def validation(self) -> LabelledImages:
        """The samples that every env is judged on after every epoch."""
        return self._validation

    def on_test_split(self) -> "Dataset":
        """The same data, judged on the whole test split, which nothing but a report sees."""
        return replace(self, _validation=_build_split(self._test, self.normalise))


def open_dataset(task: TaskSpec, spec: DataSpec, device: torch.device | str) -> Dataset:
    """The data set of a task on a device; a DataError where files are missing or damaged."""
    splits = read_splits(task, spec)
    normalise = Normalisation(task.scale, task.mean, task.std)
    _check_shape(task, splits)
    count = _validation_count(task, spec, len(splits.validation))
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
    """The stored samples of a task's data set, on the CPU."""
    if task.dataset == "digits":
        return read_digits()
    if task.dataset == "cifar":
        return read_cifar(data_folder(spec))
    raise ConfigError(f"task {task.name} names the data set {task.dataset!r}; want digits or cifar")


def choose_placement(splits: Splits, spec: DataSpec) -> str:
    """Where the training split lies, resident or streamed: as asked for, or by what all splits need."""
    need = sum(samples.size for samples in (splits.train, splits.validation, splits.test)) / GIB
    fits = need <= spec.resident_limit_gib
    if spec.placement == RESIDENT and not fits:
        raise ConfigError(
            f"data.placement is {RESIDENT} and the data needs {need:.3g} GiB; want at most data.resident_limit_gib, "
            f"which is {spec.resident_limit_gib:g}, or {STREAMED} or {AUTO}"
        )
    if spec.placement == AUTO:
        return RESIDENT if fits else STREAMED
    return spec.placement


def data_folder(spec: DataSpec) -> Path:
    """Where data files lie: `data.dir`, else $MORPHOGEN_DATA, else `./data`."""
    return Path(spec.dir or os.environ.get(FOLDER_VARIABLE) or FOLDER)


def _validation_count(task: TaskSpec, spec: DataSpec, available: int) -> int:
    """How many validation samples are used: the first ones in dealt order."""
    wanted = task.val_samples if spec.val_samples == "task" else spec.val_samples
    count = available if wanted is None else int(wanted)
    if count > available:
        raise ConfigError(f"data.val_samples is {count}; want at most {available}, the size of the validation split")
    return count


def _check_shape(task: TaskSpec, splits: Splits) -> None:
    found = tuple(splits.train.pixels.shape[1:])
    want = (task.host.channels_in, task.host.size, task.host.size)
    if found != want or not len(splits.train):
        raise DataError(f"{task.dataset} has {len(splits.train)} training images of shape {found}; want shape {want}")


def _channels(values: tuple[float, ...], like: Tensor) -> Tensor:
    return constant_table(values, torch.float32, like.device).view(-1, 1, 1)


def _build_split(samples: Samples, normalise: Normalisation) -> LabelledImages:
    return LabelledImages(
        images=normalise(samples.pixels), labels=samples.labels, batch_size=[], device=samples.labels.device
    )
