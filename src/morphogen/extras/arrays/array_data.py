"""Data sets from arrays and from `torch.utils.data.Dataset`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset

from morphogen.config.files import error_line
from morphogen.data.splits import Samples, Splits, hold_out
from morphogen.errors import DataError
from morphogen.extras.arrays.conversion import convert_inputs, convert_targets
from morphogen.vocab.plain import to_plain
from morphogen.vocab.text import format_value, short_repr

Samplewise = np.ndarray[Any, Any] | Tensor | Sequence[Any]
STREAMS: tuple[type[Any], ...] = (IterableDataset,)  # types without samples by number
HELD_OUT_SHARE = 6  # one sample in six for validation, and one for the test split


@short_repr
@dataclass(frozen=True, slots=True, eq=False)
class ArrayData:
    """Data set in memory; a part of the registry `DATASETS`."""

    name: str
    splits: Splits

    @property
    def inputs(self) -> Any:
        """Inputs of the training split, [N, *shape]."""
        return self.splits.train.inputs

    def __call__(self, folder: Path) -> Splits:
        """Return the splits; the folder of data files has no effect."""
        del folder
        return self.splits


def from_arrays(
    name: str,
    inputs: Samplewise,
    labels: Samplewise,
    *,
    validation: int | None = None,
    test: tuple[Samplewise, Samplewise] | int | None = None,
) -> ArrayData:
    """Make a data set of two arrays, split by a fixed key.

    Args:
        name: of the data set, in configs and messages.
        inputs: uint8 or a floating-point type [N, *shape], channels first; stored as uint8 or
            float32.  Any byte order, strides and device; or a list with one array, tensor or list
            of numbers per sample.
        labels: class labels, integers [N], the lowest one 0; or targets of another loss of the task
            [N, ...]: floating-point numbers, stored as float32, or bool or integers [N, T], stored
            as int64.
        validation: number of samples on which every env is scored; None: a sixth.
        test: number of samples of the test split, or its inputs and labels; None: a sixth.

    Returns: a data set for `DATASETS.register`, `RunSpec(data={"name": ...})`,
    `TaskSpec(dataset=...)` and `make(dataset=...)`.
    Raises: DataError for arrays of other shapes or types, values that are not finite, splits
    without samples, with the sample and a remedy.

    Example:
        >>> import numpy as np
        >>> import morphogen as mg
        >>> images = np.arange(60 * 64, dtype=np.uint8).reshape(60, 1, 8, 8)
        >>> data = mg.from_arrays("noise", images, np.arange(60) % 10)
        >>> [len(split) for split in (data.splits.train, data.splits.validation, data.splits.test)]
        [40, 10, 10]
        >>> env = mg.make("digits", envs=2, dataset=data, instance={"classes": (10, 10)})
    """
    samples = _convert(name, inputs, labels)
    usual = len(samples) // HELD_OUT_SHARE
    if isinstance(test, tuple | list) and len(test) == 2:
        rest = samples
        tested = _convert(f"{name}: test", *test, like=samples.labels)
    else:
        rest, tested = _hold_out(f"{name}: test", samples, test, usual=usual)
    train, validated = _hold_out(f"{name}: validation", rest, validation, usual=usual)
    return ArrayData(name, Splits(train, validated, tested))


def from_torch(
    name: str,
    dataset: TorchDataset[Any],
    *,
    test: TorchDataset[Any] | int | None = None,
    validation: int | None = None,
) -> ArrayData:
    """Make a data set of a map-style `torch.utils.data.Dataset` of pairs (input, label), read once.

    Args: as in `from_arrays`; an input is a tensor or array [*shape], a label an integer, or a
        target of another loss, a number or an array.

    Returns: a data set, as `from_arrays` does.
    Raises: DataError as in `from_arrays`, and for a data set without a length, or with a sample
    that is no pair or cannot be read.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> pairs = torch.utils.data.TensorDataset(torch.zeros(24, 1, 8, 8), torch.arange(24) % 10)
        >>> splits = mg.from_torch("noise", pairs, test=4, validation=8).splits
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (12, 8, 4)
    """
    test = to_plain(test)
    held: Any = (
        test if test is None or isinstance(test, int) else _read_items(f"{name}: test", test)
    )
    return from_arrays(name, *_read_items(name, dataset), validation=validation, test=held)


def _read_items(name: str, dataset: Any) -> tuple[list[Any], list[Any]]:
    """Return the inputs and the labels of a data set of pairs."""
    if isinstance(dataset, STREAMS) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"{name}: expected a data set with a length and samples by number, got "
            f"{type(dataset).__name__}: read it into a list of pairs, as in list(dataset)"
        )
    count = len(dataset)
    pairs: list[tuple[Any, Any]] = []
    for i in range(count):
        try:
            given, label = dataset[i]
        except Exception as error:  # of the code of the data set, or no pair
            got = f"{type(error).__name__} in sample {i} ({error_line(error)})"
            raise DataError(f"{name}: expected {count} pairs (input, label), got {got}") from error
        pairs.append((given, label))
    return [given for given, _ in pairs], [label for _, label in pairs]


def _convert(name: str, inputs: object, labels: object, like: Tensor | None = None) -> Samples:
    numbers = convert_inputs(f"{name}: inputs", inputs)
    targets = convert_targets(f"{name}: labels", labels, like=like)
    if len(numbers) != len(targets):
        raise DataError(
            f"{name}: expected one label per input, got {len(numbers)} inputs and "
            f"{len(targets)} labels"
        )
    return Samples(numbers, targets)


def _hold_out(name: str, samples: Samples, count: object, *, usual: int) -> tuple[Samples, Samples]:
    """Return (rest, held out).  usual: the number of samples that are held out where none is
    given.
    """
    size = usual if count is None else to_plain(count)
    if type(size) is not int or not 1 <= size < len(samples):
        raise DataError(
            f"{name}: expected 1 .. {len(samples) - 1} of {len(samples)} samples, got "
            f"{format_value(size)}"
        )
    return hold_out(samples, size)
