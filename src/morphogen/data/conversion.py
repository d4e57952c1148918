"""Conversion of samples from outside: checked first, then copied to tensors on the CPU.

Taken: arrays of any byte order and strides, also read-only ones; tensors of any device, with or
without a gradient; objects with `__array__`; lists of numbers, and lists of any of these, one per
sample.  All else is a DataError with the field, the sample where there is one, and a remedy.
"""

import contextlib
from collections.abc import Sequence
from numbers import Number
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from morphogen.config.files import error_line
from morphogen.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST = 2**63 - 1  # number of a class
_RENUMBER = "number the classes, as in np.unique(labels, return_inverse=True)[1]"
_INTEGERS = 'convert them, as in labels.astype("int64")'


def convert_inputs(field: str, values: object) -> Tensor:
    """Return a copy of the inputs of samples, uint8 or float32 [N, *shape].  Raises DataError."""
    array = _read_array(field, values)
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        remedy = 'convert them, as in inputs.astype("float32")'
        raise DataError(
            f"{field}: expected uint8 or a floating-point type, got {_type_name(array)}: {remedy}"
        )
    if array.ndim < 2 or not array.size:
        remedy = (
            "with one number per sample, give inputs.reshape(-1, 1)"
            if array.size
            else "there are no samples"
        )
        raise DataError(f"{field}: expected [N, ...], got shape {list(array.shape)}: {remedy}")
    if array.dtype == np.uint8:
        return torch.from_numpy(np.array(array, order="C"))
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32, order="C")
    broken = np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(1))
    if len(broken):
        first = broken[0]
        value = array[first][~np.isfinite(numbers[first])][0]
        raise DataError(
            f"{field}: expected finite numbers in float32, got {value} in sample {first}, "
            "and such numbers in "
            f"{len(broken)} of {len(numbers)} samples: leave these out, or fill them"
        )
    return torch.from_numpy(numbers)


def convert_labels(field: str, values: object, *, classes: int | None = None) -> Tensor:
    """Return a copy of the labels of samples, int64 [N], in 0 .. classes - 1; None: from 0 on.

    Raises: DataError, which names the field.
    """
    array = _read_array(field, values)
    if array.ndim != 1:
        remedy = (
            "give labels.argmax(1) of one-hot labels"
            if array.shape[1:] > (1,)
            else "give labels.reshape(-1)"
        )
        raise DataError(
            f"{field}: expected one number per sample, [N], got shape {list(array.shape)}: {remedy}"
        )
    if array.dtype.kind not in "iu":
        raise _describe_type_of_labels(field, array)
    highest = LARGEST if classes is None else classes - 1
    wrong = np.flatnonzero((array < 0) | (array > highest))
    if len(wrong):
        allowed = "class numbers from 0 on" if classes is None else f"0 .. {highest}"
        got = f"{array[wrong[0]]} in sample {wrong[0]}"
        raise DataError(
            f"{field}: expected {allowed}, got {got}: leave such samples out, or {_RENUMBER}"
        )
    if classes is None and len(array) and array.min() > 0:
        raise DataError(
            f"{field}: expected class numbers from 0 on, got {array.min()} .. "
            f"{array.max()}: {_RENUMBER}"
        )
    return torch.from_numpy(array.astype(np.int64))


def check_tensor(field: str, value: object) -> None:
    """Raise DataError unless a value is a dense tensor on the CPU, without a gradient, of finite
    numbers.
    """
    if not isinstance(value, Tensor):
        raise DataError(
            f"{field}: expected a tensor, got {type(value).__name__}: mg.from_arrays takes "
            "other forms"
        )
    if value.device.type != "cpu" or value.layout is not torch.strided or value.requires_grad:
        got = f"{value.layout} on {value.device}{' with a gradient' * value.requires_grad}"
        remedy = "give value.detach().cpu(), and to_dense() of a sparse one"
        raise DataError(
            f"{field}: expected a dense tensor on the CPU, without a gradient, got {got}: {remedy}"
        )
    if value.is_floating_point() and not (finite := value.isfinite()).all():
        first = int(finite.reshape(len(value), -1).all(1).int().argmin())
        raise DataError(
            f"{field}: expected finite numbers, got NaN or an infinite one in sample "
            f"{first}: leave it out"
        )


def _describe_type_of_labels(field: str, array: Array) -> DataError:
    """Return the error of labels [N] that are no integers."""
    sample = 0
    remedy = _INTEGERS if array.dtype.kind in "bf" else _RENUMBER
    if array.dtype.kind == "f" and len(
        others := np.flatnonzero(~np.isfinite(array) | (array != np.rint(array)))
    ):
        sample = others[0]
        remedy = (
            "cut numbers into classes, as in np.digitize(labels, bins), and leave samples "
            "without a label out"
        )
    got = f", {array.tolist()[sample]!a:.40} in sample {sample}" if len(array) else ""
    return DataError(f"{field}: expected integers, got {_type_name(array)}{got}: {remedy}")


def _type_name(array: Array) -> str:
    return "text" if array.dtype.kind in "SU" else array.dtype.name


def _read_array(field: str, values: object) -> Array:
    """Return samples as an array of any type."""
    if not _is_list(values):
        return _read_sample(field, values)
    samples = cast("Sequence[object]", values)
    if all(isinstance(sample, int | float) or _is_list(sample) for sample in samples):
        with contextlib.suppress(Exception):  # the loop below finds the sample that is at fault
            return np.asarray(samples)
    arrays = [_read_sample(f"{field}: sample {i}", sample) for i, sample in enumerate(samples)]
    for i, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            got = f"{list(arrays[0].shape)} and, in sample {i}, {list(array.shape)}"
            raise DataError(f"{field}: expected samples of one shape, got {got}: crop or pad them")
        if array.dtype.kind != arrays[0].dtype.kind:
            got = f"{_type_name(arrays[0])} and, in sample {i}, {_type_name(array)}"
            raise DataError(f"{field}: expected samples of one type, got {got}: convert them")
    return np.stack(arrays) if arrays else np.empty(0)


def _is_list(values: object) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _read_sample(field: str, value: object) -> Array:
    """Return a tensor, an array, a number, or a list of numbers as an array of any type."""
    if not (isinstance(value, Tensor | Number | str | Sequence) or hasattr(value, "__array__")):
        remedy = "convert it (an image: with channels first), or leave it out"
        got = type(value).__name__
        raise DataError(
            f"{field}: expected an array, a tensor, or a list of numbers, got {got}: {remedy}"
        )
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DataError(
            f"{field}: expected a value everywhere, got a masked array: fill it, as in "
            "inputs.filled(0)"
        )
    try:
        if isinstance(value, Tensor):
            # as bfloat16
            small = value.is_floating_point() and value.itemsize < torch.float32.itemsize
            return (value.float() if small else value).numpy(force=True)
        return np.asarray(value)
    except Exception as error:  # of the library of the array
        remedy = "give a dense array of plain numbers on the CPU"
        raise DataError(
            f"{field}: {type(value).__name__}: {error_line(error)}: {remedy}"
        ) from error
