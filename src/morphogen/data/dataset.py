"""Data set of a run: stored bytes, normalised on reading, on the device or streamed to it."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from morphogen.config.groups import AUTO, RESIDENT, STREAMED, DataSpec
from morphogen.config.parts import BUILT_IN, DATASETS
from morphogen.config.task import TaskSpec
from morphogen.data.conversion import check_tensor
from morphogen.data.data_files import find_folder
from morphogen.data.splits import (
    Samples,
    Splits,
    StoredInputs,
    as_resident,
    as_tensor,
    fingerprint,
    move_labels,
    window_samples,
)
from morphogen.data.token_text import MOST_WINDOWS, TextSplits, check_text
from morphogen.errors import ConfigError, DataError
from morphogen.state.measure import LabelledInputs
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.host import Host
from morphogen.vocab.registry import error_line
from morphogen.vocab.text import short_repr

GIB = 2**30


class Preparation(Protocol):
    """Map from stored samples to the inputs and labels of networks."""

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of samples as stored, by operators of the device alone."""
        ...


@dataclass(frozen=True, slots=True)
class NextToken:
    """Map from windows of a text to tokens and the tokens behind them."""

    separator: int  # token that stands for padding

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and next tokens; the stored labels have no effect.

        Shapes: samples int32 [..., n + 1], -1 = padding -> int64 [..., n] both; no target is -1.
        """
        tokens = samples.to(torch.int64)
        inputs, targets = tokens[..., :-1], tokens[..., 1:]
        return inputs.masked_fill(inputs < 0, self.separator), targets.contiguous()


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Map from stored numbers to network inputs, per channel: `(number / scale - mean) / std`."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dims: int = 3  # axes of a sample, channels first

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the network inputs of stored samples.  uint8 or float32 [..., C, *rest] -> float32 [..., C, *rest]."""
        gain = tuple(1 / (self.scale * std) for std in self.std)
        offset = tuple(-mean / std for mean, std in zip(self.mean, self.std, strict=True))
        return pixels.to(torch.float32) * self._channels(gain, pixels) + self._channels(offset, pixels)

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the network inputs of stored samples, and their labels."""
        return self(samples), labels

    def _channels(self, values: tuple[float, ...], like: Tensor) -> Tensor:
        return constant_table(values, torch.float32, like.device).view(-1, *(1,) * (self.dims - 1))


@short_repr
@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits: training as stored, validation prepared for scoring; original labels.

    All tensors reside on one device, except the training inputs of streamed data, which stay on the host.
    """

    placement: str  # resident or streamed
    train: Samples  # on the host if streamed
    labels: Tensor  # of the training split, int64 [N], on the device
    preparation: Preparation
    fingerprint: str  # sha256 of the stored bytes
    sizes: dict[str, int]
    _validation: LabelledInputs
    _test: Samples
    _class_sizes: tuple[int, ...]  # samples of each class in the validation split, the most first; () of a text
    _test_class_sizes: tuple[int, ...]

    def validation(self) -> LabelledInputs:
        """Return the samples on which every env is scored after every epoch."""
        return self._validation

    def most_counted(self, classes: int) -> int | None:
        """Return the most validation samples that count in an env with so many classes at most; None: all may."""
        most = sum(self._class_sizes[:classes])
        return most if most < sum(self._class_sizes) else None

    def on_test_split(self) -> "Dataset":
        """Return the data set with the complete test split for scoring, which only reports use."""
        scored = _build_split(self._test, self.preparation)
        return replace(self, _validation=scored, _class_sizes=self._test_class_sizes)


def open_dataset(task: TaskSpec, spec: DataSpec, host: Host, device: torch.device | str) -> Dataset:
    """Return the data set of a spec, or of the task if the spec names none, on a device.

    Raises: DataError if files are missing or damaged, or if the data does not fit the host; ConfigError if the
    placement or the sample count is impossible.
    """
    name = str(spec.name or task.dataset)
    stored = read_splits(name, spec)
    check_splits(stored, host, name)
    splits = cut_splits(stored, host, name)
    text = isinstance(stored, TextSplits)
    preparation = NextToken(stored.separator) if text else _normalisation(task, splits.train)
    available = len(splits.validation)
    limit = task.val_samples if spec.val_samples == "task" else spec.val_samples
    count = available if limit is None else int(limit)
    if count > available and limit != task.val_samples:
        raise ConfigError(
            f"data.val_samples: expected at most {available}, the size of the validation split, got {count}"
        )
    count = min(count, available)  # a task is written for the official files; smaller ones are scored on all they have
    placement = choose_placement(splits, spec)
    train = splits.train if placement == STREAMED else splits.train.to(device)
    validation = splits.validation.select(torch.arange(count, device="cpu"))
    return Dataset(
        placement=placement,
        train=train,
        labels=move_labels(train.labels, device),
        preparation=preparation,
        fingerprint=fingerprint(splits),
        sizes={"train": len(splits.train), "validation": count, "test": len(splits.test)},
        _validation=_build_split(validation.to(device), preparation),
        _test=splits.test.to(device),
        _class_sizes=() if text else _class_sizes(validation.labels),
        _test_class_sizes=() if text else _class_sizes(splits.test.labels),
    )


def read_splits(name: str, spec: DataSpec) -> Splits | TextSplits:
    """Return the stored samples of a data set, on the CPU.  Raises DataError; ConfigError for a faulty reader."""
    if DATASETS.origin(name) == BUILT_IN:
        return DATASETS[name](data_folder(spec))
    read = DATASETS[name]
    try:
        return read(data_folder(spec))
    except DataError:
        raise
    except Exception as error:
        raise ConfigError(f"{DATASETS.source(name)}: {error_line(error)}") from error


def check_splits(splits: Splits | TextSplits, host: Host, name: str) -> None:
    """Raise DataError unless all splits hold samples of the shape and the classes, or the tokens, of a host."""
    if isinstance(splits, TextSplits):
        check_text(splits, host.vocabulary, name)
        return
    if not isinstance(splits, Splits):
        raise DataError(f"{name}: expected Splits, got {splits!a:.60}")
    if host.vocabulary:
        raise DataError(f"{name}: expected TextSplits, as the host takes tokens, got samples of numbers")
    for part in fields(Splits):
        samples: object = getattr(splits, part.name)
        split = f"{name}: {part.name}"
        if not isinstance(samples, Samples):
            raise DataError(f"{split}: expected Samples, got {type(samples).__name__}")
        if not isinstance(samples.inputs, StoredInputs):  # those are read on demand
            check_tensor(f"{split}: inputs", samples.inputs)
        check_tensor(f"{split}: labels", samples.labels)
        shape, labels = tuple(samples.inputs.shape[1:]), samples.labels
        if shape != host.input_shape or not len(samples):
            got = f"{len(samples)} of shape {shape}"
            raise DataError(f"{split}: expected samples of shape {host.input_shape}, as the host takes, got {got}")
        if samples.inputs.dtype not in (torch.uint8, torch.float32) or labels.dtype != torch.int64:
            got = f"{samples.inputs.dtype} and {labels.dtype}"
            raise DataError(f"{split}: expected inputs in uint8 or float32 and labels in int64, got {got}")
        if labels.shape != (len(samples),) or labels.min() < 0 or labels.max() >= host.classes:
            got = f"{len(labels) if labels.dim() == 1 else list(labels.shape)} in {labels.min()} .. {labels.max()}"
            raise DataError(f"{split}: expected {len(samples)} labels in 0 .. {host.classes - 1}, got {got}")


def cut_splits(stored: Splits | TextSplits, host: Host, name: str) -> Splits:
    """Return the samples that a host takes: a text is cut into windows.  Raises: DataError for too large a text."""
    if not isinstance(stored, TextSplits):
        return stored
    windows = stored.cut(host.input_shape[0])
    if windows[0].count > MOST_WINDOWS:
        most = f"at most {MOST_WINDOWS:,} places where a window of {host.input_shape[0] + 1} tokens may start"
        raise DataError(f"{name}: train: expected {most}, got {windows[0].count:,}: use a part of the text")
    return Splits(*map(window_samples, windows))


def _normalisation(task: TaskSpec, train: Samples) -> Normalisation:
    """Return the normalisation of a task; mean and deviation that it leaves open are those of the training split."""
    dims = len(train.inputs.shape) - 1
    if task.mean is not None and task.std is not None:
        return Normalisation(task.scale, task.mean, task.std, dims)
    pixels = as_tensor(train.inputs.to("cpu")).double().transpose(0, 1).flatten(1) / task.scale
    if not pixels.isfinite().all():
        raise DataError(f"task {task.name}: expected finite inputs, got NaN or infinite ones in the training split")
    std = [value if value > 0 else 1.0 for value in pixels.std(dim=1, correction=0).tolist()]
    return Normalisation(task.scale, task.mean or tuple(pixels.mean(dim=1).tolist()), task.std or tuple(std), dims)


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
    return find_folder(spec.dir)[0]


def _class_sizes(labels: Tensor) -> tuple[int, ...]:
    """Samples of each class, the most first.  labels int64 [N], on the host."""
    return tuple(labels.bincount().sort(descending=True).values.tolist())


def _build_split(samples: Samples, preparation: Preparation) -> LabelledInputs:
    device, stored = samples.labels.device, as_resident(samples.inputs)
    everything = stored if isinstance(stored, Tensor) else stored[torch.arange(stored.count, device=device)]
    inputs, labels = preparation.prepare(everything, samples.labels)
    return LabelledInputs(inputs=inputs, labels=labels, batch_size=[], device=device)
