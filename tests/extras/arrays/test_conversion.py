"""Samples from outside: what is taken, and what is refused with its field, its sample and a
remedy.
"""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    Dataset,
    IterableDataset,
    TensorDataset,
)

import morphogen as mg
from morphogen.errors import DataError
from morphogen.extras.arrays.conversion import convert_inputs, convert_targets

COUNT = 60
BYTES = np.random.default_rng(0).integers(0, 256, (COUNT, 1, 8, 8), dtype=np.uint8)
FLOATS = (BYTES / 255).astype(np.float32)
LABELS = np.arange(COUNT) % 10


class Wrapped:
    """An object that becomes an array, such as one of pandas or jax."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.values, Exception):
            raise self.values
        return self.values


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


INPUTS = {
    "negative strides": (FLOATS[:, :, ::-1, ::-1], FLOATS[:, :, ::-1, ::-1]),
    "big-endian": (FLOATS.astype(">f4"), FLOATS),
    "read-only bytes": (read_only(BYTES), BYTES),
    "float64": (FLOATS.astype(np.float64), FLOATS),
    "a masked array without a masked value": (np.ma.masked_array(FLOATS, mask=False), FLOATS),
    "an object with __array__": (Wrapped(FLOATS), FLOATS),
    "a tensor that needs a gradient": (torch.tensor(FLOATS).requires_grad_(), FLOATS),
    "a negated view": (
        torch.view_as_complex(torch.tensor(FLOATS).unflatten(-1, (4, 2))).conj().imag,
        -FLOATS[..., 1::2],
    ),
    "bfloat16": (torch.tensor(FLOATS).bfloat16(), torch.tensor(FLOATS).bfloat16().float().numpy()),
    "a list of arrays": (list(FLOATS), FLOATS),
    "a list of tensors that need a gradient": (
        [torch.tensor(each).requires_grad_() for each in FLOATS],
        FLOATS,
    ),
    "a list of lists": (FLOATS.tolist(), FLOATS),
}


@pytest.mark.parametrize(("given", "expected"), INPUTS.values(), ids=INPUTS)
def test_harmless_inputs_are_copied_without_a_warning(given, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken = convert_inputs("mine: inputs", given)
    assert taken.dtype == (torch.uint8 if expected.dtype == np.uint8 else torch.float32)
    assert taken.is_contiguous()
    assert not taken.requires_grad
    assert np.array_equal(taken.numpy(), expected)
    assert not np.shares_memory(taken.numpy(), np.asarray(expected))


FORMS = {
    "expected uint8 or a floating-point type, got complex64: convert": FLOATS.astype(np.complex64),
    r"expected samples \[N, ...\], got shape \[60\]": np.zeros(COUNT),
    "expected finite numbers in float32, got NaN or an infinite one in sample 7": changed(
        FLOATS, (7, 0, 1, 1), np.nan
    ),
    "got NaN or an infinite one in sample 4": changed(FLOATS.astype(np.float64), 4, 1e300),
    r"got float64 \[2\] and, in sample 1, float64 \[1\]": [[1.0, 2.0], [3.0]],
    r"got uint8 .* and, in sample 1, float32": [BYTES[0], FLOATS[1]],
    "expected a value everywhere, got a masked array: fill it": np.ma.masked_array(
        FLOATS, mask=BYTES > 250
    ),
    "sample 0: expected an array, a tensor, or a list of numbers, got Image: .* channels first": [
        Image.new("L", (8, 8))
    ],
    "expected an array, .* got dict": {"x": FLOATS},
    r"use .get\(\): give a dense array": Wrapped(
        TypeError("Implicit conversion is not allowed; use .get()")
    ),
}


@pytest.mark.parametrize("said", FORMS)
def test_other_inputs_are_refused_in_one_line(said):
    with pytest.raises(DataError, match=f"^mine: inputs: .*{said}") as caught:
        convert_inputs("mine: inputs", FORMS[said])
    assert len(str(caught.value).splitlines()) == 1


INTEGERS = {
    "uint64": (LABELS.astype(np.uint64), LABELS),
    "a tensor of uint16": (torch.tensor(LABELS.astype(np.uint16)), LABELS),
    "scalar tensors": ([torch.tensor(int(each)) for each in LABELS], LABELS),
    "a range": (range(COUNT), np.arange(COUNT)),
}


@pytest.mark.parametrize(("given", "expected"), INTEGERS.values(), ids=INTEGERS)
def test_integers_of_every_kind_are_labels(given, expected):
    assert convert_targets("mine: labels", given).tolist() == expected.tolist()


NUMBERING = r".*np.unique\(labels, return_inverse=True\)"
NO_LABELS = {
    f"got -1 in sample 3: {NUMBERING}": changed(LABELS, 3, -1),
    f"expected class numbers from 0 on, got none below 1{NUMBERING}": np.arange(COUNT) % 5 + 1,
    rf"expected integers or .* numbers for each sample, got object \[60\], {2**70} in sample 0": [
        2**70
    ]
    * COUNT,
    r"got complex64 \[60\], 0j in sample 0": LABELS.astype(np.complex64),
    r"got <U\d+ \[60\], '0' in sample 0": LABELS.astype(str),
    r"for each sample, got int64 \[\]": np.array(3),
    "expected finite numbers .* in sample 3": changed(LABELS.astype(float), 3, np.nan),
    "got NaN or an infinite one in sample 5": changed(LABELS.astype(float), 5, 1e300),
}


@pytest.mark.parametrize("said", NO_LABELS)
def test_other_labels_are_refused_in_one_line(said):
    with pytest.raises(DataError, match=f"^mine: labels: .*{said}") as caught:
        convert_targets("mine: labels", NO_LABELS[said])
    assert len(str(caught.value).splitlines()) == 1


class Items(Dataset):
    """A data set of a function of the number of a sample."""

    def __init__(self, item, count=COUNT):
        self.item, self.count = item, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.item(i)


class Stream(IterableDataset):
    """A data set that is iterated, and has a length all the same."""

    def __len__(self):
        return 1

    def __iter__(self):
        return iter([(FLOATS[0], 0)])


def broken(i):
    if i == 7:
        raise OSError("broken JPEG")
    return FLOATS[i], i % 10


PAIRS = TensorDataset(torch.tensor(FLOATS), torch.tensor(LABELS))
DATASETS = {
    "expected a data set with a length and samples by number, got Stream: .* list of "
    "pairs": Stream(),
    r"expected 60 pairs \(input, label\), got OSError in sample 7 \(broken JPEG\)": Items(broken),
    "expected 70 pairs .* got IndexError in sample 60": Items(PAIRS.__getitem__, 70),
    "expected 60 pairs .* got ValueError in sample 0": Items(lambda i: (FLOATS[i], i % 10, i)),
}


@pytest.mark.parametrize("said", DATASETS)
def test_torch_data_sets_of_other_items_are_refused_in_one_line(said):
    with pytest.raises(DataError, match=f"^mine: {said}") as caught:
        mg.from_torch("mine", DATASETS[said])
    assert len(str(caught.value).splitlines()) == 1
