"""Reader of the official CIFAR-10 files, binary or Python.  Nothing is downloaded; a pickle runs no code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from morphogen.data import pickles
from morphogen.data.splits import Samples, Splits, StoredImages, hold_out
from morphogen.errors import DataError
from morphogen.storage.safe_read import error_line, open_regular, read_bytes
from morphogen.vocab.text import format_value

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
CLASSES = 10
SHAPE = (3, 32, 32)  # red, green, blue planes, row-major
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
RECORDS = 10_000  # of an official file; fewer are allowed
VALIDATION_SHARE = 10  # one training record in ten


def read_cifar(folder: Path) -> Splits:
    """Return training, validation (a tenth of the training files) and test; binary files are preferred.

    Binary files are memory-mapped: images are read on access.
    Raises: DataError if a file is missing or damaged.
    """
    if (folder / BINARY).is_dir():
        samples = {name: read_binary(folder / BINARY / f"{name}.bin") for name in (*TRAIN, TEST)}
    else:
        samples = {name: read_python(folder / PYTHON / name) for name in (*TRAIN, TEST)}
    labels = torch.cat([samples[name].labels for name in TRAIN])
    pixels = StoredImages(tuple(samples[name].pixels for name in TRAIN), torch.arange(len(labels)))
    train, validation = hold_out(Samples(pixels, labels), len(labels) // VALIDATION_SHARE)
    if len(validation) == 0:
        raise DataError(f"{folder}: expected at least {VALIDATION_SHARE} training records, got {len(labels)}")
    return Splits(train, validation, samples[TEST])


def read_binary(path: Path) -> Samples:
    """Return the samples of a binary file: records of one label byte and 3,072 pixel bytes."""
    with _data_errors(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size == 0 or size % RECORD or size > RECORDS * RECORD:
        raise DataError(f"{path}: expected {RECORD} bytes for each of 1 .. {RECORDS} records, got {size} bytes")
    with _data_errors(path):
        records = np.memmap(path, dtype=np.uint8, mode="c", shape=(size // RECORD, RECORD))  # never written back
    return _build_samples(path, records[:, 1:], records[:, 0])


def read_python(path: Path) -> Samples:
    """Return the samples of a pickled dict with `data` uint8 [n, 3072] and `labels`, n integers."""
    with _data_errors(path):
        raw = read_bytes(path)
    try:
        batch = pickles.read_pickle(raw)
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(f"{path} is not a CIFAR batch: {error_line(error)}") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: expected a dict with data and labels, got a {type(batch).__name__}")
    entries = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    array, labels = entries.get("data"), entries.get("labels")
    if not isinstance(array, pickles.PickledArray):
        raise DataError(f"{path}: data: expected a uint8 array [n, {PIXELS}], got a {type(array).__name__}")
    try:
        data = array.array()
    except ValueError as error:
        raise DataError(f"{path}: data: {error}") from None
    if data.shape[1:] != (PIXELS,) or not 1 <= len(data) <= RECORDS:
        raise DataError(f"{path}: data: expected shape [n, {PIXELS}] with n in 1 .. {RECORDS}, got {list(data.shape)}")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: labels: expected a list of {len(data)} integers")
    return _build_samples(path, data, np.asarray(labels))


def _build_samples(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Samples:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= CLASSES:
        raise DataError(f"{path}: labels: expected 0 .. {CLASSES - 1}, got {format_value(low if low < 0 else high)}")
    images = torch.from_numpy(pixels).unflatten(-1, SHAPE)
    return Samples(images, torch.from_numpy(labels.astype(np.int64)))


@contextmanager
def _data_errors(path: Path) -> Iterator[None]:
    """Turn errors of opening and reading a file into a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing; unpack the official CIFAR-10 archive so that {path.parents[1]} holds "
            f"{BINARY} or {PYTHON}, or name another folder with --data-dir or MORPHOGEN_DATA"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from error
