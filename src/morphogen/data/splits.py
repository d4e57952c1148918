"""Stored samples, and the split into training, validation and test: by a fixed key, independent of
the seed.

Samples are images in bytes, arrays of any shape in bytes or float32, or computed from other data
(`DerivedInputs`).
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from morphogen.config.host import Host
from morphogen.config.parts import LOSSES
from morphogen.config.task import TaskSpec
from morphogen.data.data_files import FileData, FileSource, check_packaged
from morphogen.data.preparation import Normalisation, Preparation
from morphogen.errors import DataError
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.text import short_repr

# images read at once where all are: this takes the memory of any streamed data
CHUNK = 512


@short_repr
@dataclass(frozen=True, slots=True)
class StoredInputs:
    """Inputs of samples on the host, images mostly, in memory or in mapped files, read on demand.

    Indexing selects without reading; `read` and `to` read.
    """

    parts: tuple[Tensor, ...]  # uint8 or float32 [n, *shape] each, images [n, C, H, W]
    rows: Tensor  # int64 [N], indices into the concatenation of all parts

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (N, *shape)."""
        return (len(self.rows), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """Type of the stored numbers."""
        return self.parts[0].dtype

    @property
    def nbytes(self) -> int:
        """Size of all inputs in memory, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, index: Tensor) -> "StoredInputs":
        """Return the images at int64 indices [n], in order."""
        return StoredInputs(self.parts, self.rows[index])

    def read(self, index: Tensor, out: Tensor) -> None:
        """Write the images at int64 indices [n] to `out`, [n, *shape] as stored."""
        rows = self.rows[index]
        if len(self.parts) == 1:
            torch.index_select(self.parts[0], 0, rows, out=out)
            return
        for images in self.parts:
            here = ((rows >= 0) & (rows < len(images))).nonzero().squeeze(-1)
            out[here] = images[rows[here]]
            rows = rows - len(images)

    def to(self, device: torch.device | str) -> Tensor:
        """Return a copy of all images on a device, [N, *shape] as stored."""
        out = torch.empty(self.shape, dtype=self.dtype, device="cpu")
        self.read(torch.arange(len(self.rows), device="cpu"), out)
        return out.to(device)


class DerivedInputs(ABC):
    """Inputs of samples that indexing computes from other data, on any device."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape (N, *shape)."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size in memory, in bytes."""

    @abstractmethod
    def __getitem__(self, index: Tensor) -> Tensor:
        """Return samples by number, by operators of the device alone.  int64 [...] -> [...,
        *shape].
        """

    @abstractmethod
    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the inputs of changed tensors."""

    @abstractmethod
    def digest(self) -> bytes:
        """Return the sha256 of the data that the samples are computed from."""

    def read(self, index: Tensor, out: Tensor) -> None:
        """Write the samples with numbers int64 [n] to `out`, [n, *shape]."""
        out.copy_(self[index])

    def to(self, device: torch.device | str) -> Self:
        """Return the inputs of a copy of the data in the memory of a device."""
        return self.map_tensors(lambda leaf: leaf.to(device, copy=True))


Inputs = Tensor | StoredInputs | DerivedInputs  # of samples


@short_repr
@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and labels as stored.

    Shapes: inputs uint8 or float32 [N, *shape], images [N, C, H, W]; labels int64 [N], from 0 on,
    or the targets of another loss [N, ...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> samples = mg.Samples(torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10))
        >>> (
        ...     len(samples),
        ...     samples.size,
        ...     samples.select(torch.tensor([7, 2])).labels.tolist(),
        ... )  # size in bytes
        (10, 720, [7, 2])
    """

    inputs: Inputs
    labels: Tensor

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def select(self, index: Tensor) -> "Samples":
        """Return the samples at int64 indices [n], in order."""
        return Samples(self.inputs[index], self.labels[index])

    @property
    def size(self) -> int:
        """Size in memory, in bytes."""
        return self.inputs.nbytes + (
            self.labels.nbytes if self.labels.is_contiguous() else self.labels.itemsize
        )

    def to(self, device: torch.device | str) -> "Samples":
        """Return the samples in the memory of a device."""
        return Samples(self.inputs.to(device), move_labels(self.labels, device))


def move_labels(labels: Tensor, device: torch.device | str) -> Tensor:
    """Return labels in the memory of a device; one label for all samples stays one number.  int64
    [N] -> [N].
    """
    return labels.to(device) if labels.is_contiguous() else labels[:1].to(device).expand_as(labels)


class StoredSplits(ABC):
    """Data set as its reader returns it: `Splits`, or the data from which an extra computes
    samples.
    """

    __slots__ = ()

    @abstractmethod
    def deal(self, host: Host, name: str) -> "Splits":
        """Return the samples that a host takes.  Raises: DataError for data that does not fit.

        name: of the data set.
        """

    @abstractmethod
    def preparation(self, task: TaskSpec) -> Preparation:
        """Return the map from stored samples to the inputs and labels of networks.  Raises:
        DataError.
        """


@short_repr
@dataclass(frozen=True, slots=True)
class Splits(StoredSplits):
    """Three disjoint sets of samples; their union is the data set.  A data set is a function
    (folder) -> Splits.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> ten = mg.Samples(torch.zeros(10, 6), torch.arange(10) % 2)
        >>> parts = torch.arange(10).split([6, 2, 2])
        >>> splits = mg.Splits(*(ten.select(part) for part in parts))
        >>> splits.train.inputs.shape, splits.test.labels.tolist()
        (torch.Size([6, 6]), [0, 1])
    """

    train: Samples
    validation: Samples
    """Every env is scored on these after every epoch."""
    test: Samples
    """For reports only."""

    def sizes(self) -> dict[str, int]:
        """Return the number of samples of every split, by name."""
        return {part.name: len(getattr(self, part.name)) for part in fields(self)}

    def deal(self, host: Host, name: str) -> "Splits":
        """Return the splits.  Raises: DataError unless they hold samples of the shape of a host."""
        if not host.labelled:
            raise DataError(
                f"{name}: expected samples with their own answers, as the host takes, got "
                "labelled ones"
            )
        for part in fields(self):
            _check_samples(getattr(self, part.name), host, f"{name}: {part.name}")
        return self

    def preparation(self, task: TaskSpec) -> Normalisation:
        """Return the normalisation of a task, with the mean and deviation of the training split
        where it has none.
        """
        mean = task.mean
        std = task.std
        if mean is None or std is None:
            inputs: Any = self.train.inputs.to("cpu")  # a tensor now
            numbers = inputs.double().transpose(0, 1).flatten(1) / task.scale
            deviations = numbers.std(dim=1, correction=0).tolist()
            mean = mean or tuple(numbers.mean(dim=1).tolist())
            std = std or tuple(value if value > 0 else 1.0 for value in deviations)
        return Normalisation(task.scale, mean, std, len(self.train.inputs.shape) - 1)


def _check_samples(samples: object, host: Host, split: str) -> None:
    """Raise DataError unless a split holds samples of the shape of a host."""
    if not isinstance(samples, Samples):
        raise DataError(f"{split}: expected Samples, got {type(samples).__name__}")
    if not isinstance(samples.inputs, StoredInputs):  # stored inputs are read on demand
        check_tensor(f"{split}: inputs", samples.inputs)
    check_tensor(f"{split}: labels", samples.labels)
    shape = tuple(samples.inputs.shape[1:])
    if shape != host.input_shape or not len(samples):
        raise DataError(
            f"{split}: expected samples of shape {host.input_shape}, as the host takes, got "
            f"{len(samples)} of shape {shape}"
        )
    if samples.inputs.dtype not in (torch.uint8, torch.float32):
        raise DataError(f"{split}: expected inputs in uint8 or float32, got {samples.inputs.dtype}")
    if samples.labels.shape[:1] != (len(samples),):
        raise DataError(
            f"{split}: expected a target for each of {len(samples)} samples, got shape "
            f"{list(samples.labels.shape)}"
        )


def check_labels(splits: Splits, host: Host, name: str) -> None:
    """Raise DataError unless the targets of all splits are labels of the classes of a host."""
    for part in fields(splits):
        labels = getattr(splits, part.name).labels
        forms = (labels.dtype, labels.dim(), host.output_shape, host.classes > 1)
        usual = forms == (torch.int64, 1, (host.classes,), True)
        if not usual or labels.min() < 0 or labels.max() >= host.classes:
            raise DataError(
                f"{name}: {part.name}: expected {len(labels)} class labels in 0 .. "
                f"{host.classes - 1}, for outputs of shape {host.output_shape}, got {labels.dtype} "
                f"{list(labels.shape)} in {labels.min():g} .. {labels.max():g}; other targets need "
                f"another loss: {', '.join(LOSSES)}"
            )


def check_tensor(field: str, value: object) -> None:
    """Raise DataError unless a value is a dense tensor on the CPU, without a gradient, of finite
    numbers.
    """
    if not isinstance(value, Tensor):
        raise DataError(f"{field}: expected a tensor, got {type(value).__name__}")
    if value.device.type != "cpu" or value.layout is not torch.strided or value.requires_grad:
        got = f"{value.layout} on {value.device}{' with a gradient' * value.requires_grad}"
        raise DataError(
            f"{field}: expected a dense tensor on the CPU, without a gradient, got {got}"
        )
    check_finite(field, value)


def check_finite(field: str, samples: Tensor) -> None:
    """Raise DataError for samples [N, ...] with NaN or infinite numbers."""
    if samples.is_floating_point() and not (finite := samples.isfinite()).all():
        first = int(finite.reshape(len(samples), -1).all(1).int().argmin())
        raise DataError(
            f"{field}: expected finite numbers in float32, got NaN or an infinite one in sample "
            f"{first}: leave it out"
        )


def sorting_permutation(words: Tensor) -> Tensor:
    """Return the permutation that sorts random words; ties go to the lower index.  int64 [..., N]
    -> int64 [..., N].
    """
    index = torch.arange(words.shape[-1], dtype=torch.int64, device=words.device)
    return torch.argsort(words * 2**30 + index, dim=-1)


def hold_out(samples: Samples, count: int) -> tuple[Samples, Samples]:
    """Return (rest, held out): `count` samples in an order that never changes, so that any first
    part is a random sample.
    """
    stream = rng.stream(rng.env_keys(0, 0, 1), Purpose.SPLIT)
    (dealt,) = sorting_permutation(rng.random_bits(stream, len(samples)))
    return samples.select(dealt[count:].sort().values), samples.select(dealt[:count])


def fingerprint(splits: Splits) -> str:
    """Return the sha256 of the stored bytes of the three splits, in order."""
    digest = hashlib.sha256()
    for samples in (splits.train, splits.validation, splits.test):
        if isinstance(samples.inputs, DerivedInputs):
            digest.update(samples.inputs.digest())
            continue
        for index in torch.split(torch.arange(len(samples), device="cpu"), CHUNK):
            digest.update(samples.inputs[index].to("cpu").numpy().tobytes())
        digest.update(samples.labels.numpy().tobytes())
    return digest.hexdigest()


DIGITS_FILE = Path(__file__).with_name("digits.npz")
SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"  # of the file
VALIDATION = 300
TEST = 300


def load_digits(folder: Path) -> Splits:
    """Return the splits of the packaged digits; the folder of data files has no effect."""
    del folder
    return read_digits()


def read_digits(path: Path = DIGITS_FILE) -> Splits:
    """Return training, validation and test: 1,197, 300 and 300 images.

    Raises: DataError if the file is missing or changed.
    """
    check_packaged(path, SHA256)
    with np.load(path, allow_pickle=False) as arrays:
        images = torch.as_tensor(arrays["images"], device="cpu").unsqueeze(1)
        labels = torch.as_tensor(arrays["labels"], dtype=torch.int64, device="cpu")
    samples = Samples(images, labels)
    rest, test = hold_out(samples, TEST)
    train, validation = hold_out(rest, VALIDATION)
    return Splits(train, validation, test)


DIGITS = FileData("digits", load_digits, FileSource("packaged with morphogen"))
