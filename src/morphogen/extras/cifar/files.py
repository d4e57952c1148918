"""Reader of the official CIFAR-10 files, binary or Python.  Nothing is downloaded.

The Python files are pickles.  Only files with the official md5 are unpickled, because a pickle can
run code.
"""

import hashlib
import io
import os
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from morphogen.config.files import MIB, open_regular, read_bytes
from morphogen.data.data_files import FileData, FileForm, FileSource
from morphogen.data.splits import Samples, Splits, StoredInputs, hold_out
from morphogen.errors import DataError

MAX_BYTES = 64 * MIB  # of a Python file
_RECONSTRUCT = np.empty(0, np.uint8).__reduce__()[0]  # the function that a pickled array names
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
BINARY = "cifar-10-batches-bin"
PYTHON = "cifar-10-batches-py"
TEST = "test_batch"
OFFICIAL = {  # md5 of the Python files
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    TEST: "40351d587109b95175f43aff81a1287e",
}
TRAIN = tuple(name for name in OFFICIAL if name != TEST)
CLASSES = 10
SHAPE = (3, 32, 32)  # red, green, blue planes, row-major
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
RECORDS = 10_000  # of an official file; fewer are allowed
VALIDATION_SHARE = 10  # one training record in ten
# records of a label and its pixels, a byte each
_BINARY_FORM = FileForm("binary", tuple(f"{BINARY}/{name}.bin" for name in (*TRAIN, TEST)))
_PYTHON_FORM = FileForm("python", tuple(f"{PYTHON}/{name}" for name in (*TRAIN, TEST)))
FILES = FileSource("the unpacked official CIFAR-10 archive", (_BINARY_FORM, _PYTHON_FORM), usual=1)


class _Unpickler(pickle.Unpickler):
    """Unpickler that knows the names of an array of bytes, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object of an allowed name.  Raises: UnpicklingError for any other name."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no official file does")
        return _ALLOWED[module, name]


def read_cifar(folder: Path) -> Splits:
    """Return training, validation (a tenth of the training files) and test; binary files are
    preferred.

    Binary files are memory-mapped: images are read on access.
    Raises: DataError if a file is missing or damaged.
    """
    form = FILES.choose_form(folder)
    read = read_binary if form is _BINARY_FORM else read_python
    samples = {
        name: read(folder / path) for name, path in zip((*TRAIN, TEST), form.paths, strict=True)
    }
    labels = torch.cat([samples[name].labels for name in TRAIN])
    pixels = StoredInputs(
        tuple(cast(Tensor, samples[name].inputs) for name in TRAIN),
        torch.arange(len(labels), device="cpu"),
    )
    train, validation = hold_out(Samples(pixels, labels), len(labels) // VALIDATION_SHARE)
    if len(validation) == 0:
        raise DataError(
            f"{folder}: expected at least {VALIDATION_SHARE} training records, got {len(labels)}"
        )
    return Splits(train, validation, samples[TEST])


def read_binary(path: Path) -> Samples:
    """Return the samples of a binary file: records of one label byte and 3,072 pixel bytes."""
    with FILES.reading(path, path.parents[1]), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size == 0 or size % RECORD or size > RECORDS * RECORD:
        raise DataError(
            f"{path}: expected {RECORD} bytes for each of 1 .. {RECORDS} records, got {size} bytes"
        )
    with FILES.reading(path, path.parents[1]):
        # never written back
        records = np.memmap(path, dtype=np.uint8, mode="c", shape=(size // RECORD, RECORD))
    return _build_samples(path, records[:, 1:], records[:, 0])


def read_python(path: Path) -> Samples:
    """Return the samples of an official file, a pickled dict with `data` uint8 [n, 3072] and
    `labels`, n integers.
    """
    with FILES.reading(path, path.parents[1]):
        raw = read_bytes(path, MAX_BYTES)
    digest = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if digest != OFFICIAL[path.name]:
        got = f"{len(raw):,} bytes with md5 {digest}"
        raise DataError(
            f"{path}: expected the official file, with md5 {OFFICIAL[path.name]}, got {got}"
        )
    batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    return _build_samples(path, batch[b"data"], batch[b"labels"])


def _build_samples(path: Path, pixels: np.ndarray, labels: Any) -> Samples:
    marks = torch.as_tensor(labels, device="cpu").to(torch.int64)
    wrong = (marks < 0) | (marks >= CLASSES)
    if wrong.any():
        first = int(wrong.int().argmax())
        raise DataError(
            f"{path}: labels: expected 0 .. {CLASSES - 1}, got {marks[first]} in sample {first}"
        )
    return Samples(torch.from_numpy(pixels).unflatten(-1, SHAPE), marks)


CIFAR = FileData("cifar", read_cifar, FILES)
