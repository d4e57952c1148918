"""Data sets from arrays and from `torch.utils.data.Dataset`."""

from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from morphogen.data.splits import Samples, Splits, hold_out
from morphogen.errors import DataError
from morphogen.vocab.text import short_repr

Array = np.ndarray[Any, Any]
HELD_OUT_SHARE = 6  # one sample in six for validation, and one for the test split


@short_repr
@dataclass(frozen=True, slots=True, eq=False)
class ArrayData:
    """Data set in memory; a part of the registry `DATASETS`."""

    name: str
    splits: Splits

    def __call__(self, folder: Path) -> Splits:
        """Return the splits; the folder of data files has no effect."""
        del folder
        return self.splits


def from_arrays(
    name: str,
    inputs: Array | Tensor,
    labels: Array | Tensor,
    *,
    validation: int | None = None,
    test: tuple[Array | Tensor, Array | Tensor] | int | None = None,
) -> ArrayData:
    """Make a data set of two arrays, split by a fixed key.

    Args:
        name: of the data set, in configs and messages.
        inputs: uint8 or a floating-point type [N, *shape], channels first; stored as uint8 or float32.
        labels: integers [N], from 0 on.
        validation: number of samples on which every env is scored; None: a sixth.
        test: number of samples of the test split, or its inputs and labels; None: a sixth.

    Returns: a data set for `DATASETS.register`, `RunSpec(data={"name": ...})`, `TaskSpec(dataset=...)` and
    `make(dataset=...)`.
    Raises: DataError for arrays of other shapes or types, values that are not finite, splits without samples.

    Example:
        >>> import numpy as np
        >>> import morphogen as mg
        >>> images = np.arange(60 * 64, dtype=np.uint8).reshape(60, 1, 8, 8)
        >>> data = mg.from_arrays("noise", images, np.arange(60) % 10)
        >>> [len(split) for split in (data.splits.train, data.splits.validation, data.splits.test)]
        [40, 10, 10]
        >>> env = mg.make("digits", envs=2, dataset=data, instance={"classes": (10, 10)})
    """
    samples = _samples(name, inputs, labels)
    share = len(samples) // HELD_OUT_SHARE
    if isinstance(test, tuple):
        rest, tested = samples, _samples(f"{name}: test", *test)
    else:
        rest, tested = _hold_out(name, "test", samples, share if test is None else test)
    train, validated = _hold_out(name, "validation", rest, share if validation is None else validation)
    return ArrayData(name, Splits(train, validated, tested))


def from_torch(
    name: str, dataset: TorchDataset[Any], *, test: TorchDataset[Any] | int | None = None, validation: int | None = None
) -> ArrayData:
    """Make a data set of a map-style `torch.utils.data.Dataset` of pairs (input, label), read once.

    Args: as in `from_arrays`; an input is a tensor or array [*shape], a label an integer.

    Returns: a data set, as `from_arrays` does.
    Raises: DataError as in `from_arrays`, and for a data set without a length or inputs of several shapes.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> pairs = torch.utils.data.TensorDataset(torch.zeros(24, 1, 8, 8), torch.arange(24) % 10)
        >>> splits = mg.from_torch("noise", pairs, test=4, validation=8).splits
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (12, 8, 4)
    """
    pairs = None if test is None or isinstance(test, int) else _stack(f"{name}: test", test)
    held = test if isinstance(test, int) else pairs
    return from_arrays(name, *_stack(name, dataset), validation=validation, test=held)


def _stack(name: str, dataset: TorchDataset[Any]) -> tuple[Tensor, Tensor]:
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{name}: expected a data set with a length, got {type(dataset).__name__}")
    items = [dataset[i] for i in range(len(cast(Sized, dataset)))]
    inputs = [torch.as_tensor(item[0]) for item in items]
    shapes = sorted({tuple(each.shape) for each in inputs})
    if len(shapes) != 1:
        raise DataError(f"{name}: expected inputs of one shape, got {', '.join(map(str, shapes)) or 'no samples'}")
    return torch.stack(inputs), torch.tensor([int(item[1]) for item in items])


def _samples(name: str, inputs: Array | Tensor, labels: Array | Tensor) -> Samples:
    pixels, marks = torch.as_tensor(inputs), torch.as_tensor(labels)
    if pixels.ndim < 2 or marks.shape != pixels.shape[:1]:
        shapes = f"{list(pixels.shape)} and {list(marks.shape)}"
        raise DataError(f"{name}: expected inputs [N, ...] and labels [N], got shapes {shapes}")
    if marks.is_floating_point() or marks.is_complex() or marks.dtype == torch.bool:
        raise DataError(f"{name}: expected integers as labels, got {marks.dtype}")
    if pixels.dtype != torch.uint8:
        if not pixels.is_floating_point():
            raise DataError(f"{name}: expected inputs in uint8 or a floating-point type, got {pixels.dtype}")
        pixels = pixels.to(torch.float32)
        if not pixels.isfinite().all():
            count = int((~pixels.isfinite()).flatten(1).any(1).sum())
            raise DataError(f"{name}: expected finite inputs, got NaN or infinite numbers in {count} samples")
    return Samples(pixels.contiguous().clone(), marks.to(torch.int64))


def _hold_out(name: str, split: str, samples: Samples, count: int) -> tuple[Samples, Samples]:
    if not 1 <= count < len(samples):
        raise DataError(f"{name}: {split}: expected 1 .. {len(samples) - 1} samples, got {count}")
    return hold_out(samples, count)
