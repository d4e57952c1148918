"""Conversion of samples from outside: checked first, then copied to tensors on the CPU.

Taken: arrays of any byte order and strides, also read-only ones; tensors of any device, with or
without a gradient; objects with `__array__`; lists of numbers, and lists of any of these, one per
sample.  All else is a DataError with the field, the sample where there is one, and a remedy.
"""

from collections.abc import Sequence
from numbers import Number
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from morphogen.config.files import error_line
from morphogen.data.splits import check_finite
from morphogen.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]


def convert_inputs(field: str, values: object) -> Tensor:
    """Return a copy of the inputs of samples, uint8 or float32 [N, *shape].  Raises DataError."""
    array = _read_array(field, values)
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        remedy = 'convert them, as in inputs.astype("float32")'
        raise DataError(
            f"{field}: expected uint8 or a floating-point type, got {array.dtype}: {remedy}"
        )
    if array.ndim < 2 or not array.size:
        raise DataError(f"{field}: expected samples [N, ...], got shape {list(array.shape)}")
    kind = np.uint8 if array.dtype == np.uint8 else np.float32
    with np.errstate(over="ignore"):
        inputs = torch.from_numpy(np.array(array, dtype=kind, order="C"))
    check_finite(field, inputs)
    return inputs


def convert_targets(field: str, values: object, *, like: Tensor | None = None) -> Tensor:
    """Return a copy of the targets of samples [N, ...]: class labels are int64 [N] from 0 on, other
    integers int64 and numbers float32.

    like: targets of the training samples, of the same type and shape, and with all classes.
    Raises: DataError, which names the field.
    """
    array = _read_array(field, values)
    kind = array.dtype.kind
    if not array.ndim or kind not in "biuf":
        got = f", {array.tolist()[0]!a:.40} in sample 0" if array.ndim and len(array) else ""
        raise DataError(
            f"{field}: expected integers or floating-point numbers for each sample, got "
            f"{array.dtype} {list(array.shape)}{got}"
        )
    if array.ndim == 1 and kind in "iu":
        targets = _convert_labels(field, array, classes=_count_classes(like))
    else:
        with np.errstate(over="ignore"):
            targets = torch.from_numpy(array.astype(np.float32 if kind == "f" else np.int64))
        check_finite(field, targets)
    forms = [(x.dtype, list(x.shape[1:])) for x in (like, targets) if x is not None]
    if len(forms) > 1 and forms[0] != forms[1]:
        texts = [f"{dtype} of shape {shape}" for dtype, shape in forms]
        raise DataError(
            f"{field}: expected {texts[0]}, as the training targets are, got {texts[1]}"
        )
    return targets


def _count_classes(labels: Tensor | None) -> int | None:
    if labels is None or labels.dim() > 1 or labels.is_floating_point():
        return None
    return int(labels.max()) + 1


def _convert_labels(field: str, array: Array, *, classes: int | None) -> Tensor:
    """Return class labels, int64 [N], in 0 .. classes - 1; None: from 0 on."""
    highest = 2**63 - 1 if classes is None else classes - 1
    wrong = np.flatnonzero((array < 0) | (array > highest))
    lowest = array.min(initial=0 if len(array) == 0 else array[0])
    if len(wrong) or (classes is None and lowest > 0):
        allowed = "class numbers from 0 on" if classes is None else f"0 .. {highest}"
        got = f"{array[wrong[0]]} in sample {wrong[0]}" if len(wrong) else f"none below {lowest}"
        remedy = (
            "number the classes, as in np.unique(labels, return_inverse=True)[1], or give other "
            "targets as floating-point numbers"
        )
        raise DataError(f"{field}: expected {allowed}, got {got}: {remedy}")
    return torch.from_numpy(array.astype(np.int64))


def _read_array(field: str, values: object) -> Array:
    """Return samples as an array of any type."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return _read_sample(field, values)
    samples = cast("Sequence[object]", values)
    if all(isinstance(sample, int | float) for sample in samples):
        return np.asarray(samples)
    arrays = [_read_sample(f"{field}: sample {i}", sample) for i, sample in enumerate(samples)]
    forms = [f"{array.dtype} {list(array.shape)}" for array in arrays]
    other = next((i for i, form in enumerate(forms) if form != forms[0]), None)
    if other is not None:
        got = f"{forms[0]} and, in sample {other}, {forms[other]}"
        raise DataError(f"{field}: expected samples of one type and shape, got {got}")
    return np.stack(arrays)


def _read_sample(field: str, value: object) -> Array:
    """Return a tensor, an array, a number, or a list of numbers as an array of any type."""
    if not (isinstance(value, Tensor | Number | Sequence) or hasattr(value, "__array__")):
        raise DataError(
            f"{field}: expected an array, a tensor, or a list of numbers, got "
            f"{type(value).__name__}: convert it (an image: with channels first), or leave it out"
        )
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DataError(f"{field}: expected a value everywhere, got a masked array: fill it")
    try:
        if not isinstance(value, Tensor):
            return np.asarray(value)
        # NumPy has no bfloat16
        small = value.is_floating_point() and value.itemsize < torch.float32.itemsize
        return (value.float() if small else value).numpy(force=True)
    except Exception as error:  # of the library of the array
        raise DataError(
            f"{field}: {type(value).__name__}: {error_line(error)}: give a dense array of plain "
            "numbers on the CPU"
        ) from error
