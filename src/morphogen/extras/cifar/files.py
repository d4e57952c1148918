"""Reader of the official CIFAR-10 files, binary or Python.  Nothing is downloaded.

A pickle runs no code, and takes time and memory by its size alone: the number of its operations is bounded, keys are
plain values (the hash of nested tuples takes exponential time), and text is encoded once per byte of the file.
"""

import io
import math
import os
import pickle
import pickletools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from morphogen.data.conversion import convert_labels
from morphogen.data.data_files import FileData, FileForm, FileSource
from morphogen.data.splits import Samples, Splits, StoredInputs, as_tensor, hold_out
from morphogen.errors import DataError
from morphogen.storage.files import MIB, error_line, open_regular, read_bytes

MAX_BYTES = 64 * MIB  # of a pickle
MAX_OPERATIONS = 250_000  # of a pickle; an official file has less than a tenth


class PickledArray:
    """Record of a byte array in a pickle."""

    __slots__ = ("_raw", "_shape")

    def __init__(self, raw: Any = b"", shape: Any = (0,)) -> None:
        self._raw, self._shape = raw, shape

    def __setstate__(self, state: Any) -> None:
        version, self._shape, kind, columns_first, self._raw = state
        if version != 1 or not isinstance(kind, _Uint8Stub) or columns_first:
            raise pickle.UnpicklingError("an array that is stored in another way")

    def array(self) -> np.ndarray:
        """Return the array; a ValueError if its bytes do not fill its shape."""
        if not isinstance(self._raw, bytes | bytearray) or not isinstance(self._shape, tuple):
            raise ValueError("an array without bytes or shape")
        if not all(type(size) is int and size >= 0 for size in self._shape) or math.prod(self._shape) != len(self._raw):
            raise ValueError(f"an array of shape {self._shape} out of {len(self._raw)} bytes")
        return np.frombuffer(bytearray(self._raw), dtype=np.uint8).reshape(self._shape)


class _Uint8Stub:
    """Stub of the dtype uint8."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Ignore the state: a byte has no order and no fields."""


class _CallStub:
    """Stub of a name, which can only be called."""

    __slots__ = ("_make",)

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name is to be changed")


def _make_dtype(code: Any, *flags: Any) -> _Uint8Stub:
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError("an array of anything but uint8")
    return _Uint8Stub()


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
    if not isinstance(dtype, _Uint8Stub) or order not in ("C", b"C"):
        raise pickle.UnpicklingError("an array that is stored in another way")
    return PickledArray(raw, shape)


_EMPTY_ARRAY = _CallStub(lambda kind, shape, code: PickledArray())
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _EMPTY_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _EMPTY_ARRAY,
    ("numpy.core.numeric", "_frombuffer"): _CallStub(_from_buffer),
    ("numpy._core.numeric", "_frombuffer"): _CallStub(_from_buffer),
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _CallStub(_make_dtype),
}


_LOAD: dict[int, Callable[[Any], None]] = pickle._Unpickler.dispatch  # functions of the codes of a pickle


class _Unpickler(pickle._Unpickler):  # in Python: the one in C hashes every key
    """Unpickler of containers, numbers, strings and records of arrays."""

    stack: list[Any]

    dispatch: ClassVar[dict[int, Any]] = {  # without sets, which hash what they hold
        code: load
        for code, load in _LOAD.items()
        if code not in (pickle.EMPTY_SET[0], pickle.ADDITEMS[0], pickle.FROZENSET[0])
    }

    def __init__(self, raw: bytes) -> None:
        super().__init__(io.BytesIO(raw), encoding="bytes")
        self._text_left = len(raw)  # bytes that may still be encoded

    def load_dict(self) -> None:
        """Build a dict of the items since the mark."""
        _check_keys(self.stack[::2])
        _LOAD[pickle.DICT[0]](self)

    def load_setitem(self) -> None:
        """Set an item of the dict below."""
        _check_keys(self.stack[-2:-1])
        _LOAD[pickle.SETITEM[0]](self)

    def load_setitems(self) -> None:
        """Set the items since the mark."""
        _check_keys(self.stack[::2])
        _LOAD[pickle.SETITEMS[0]](self)

    dispatch |= {pickle.DICT[0]: load_dict, pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems}

    def _encode(self, text: str, encoding: str = "latin1") -> bytes:
        """Return bytes that an old pickle stores as text."""
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("bytes in another encoding than latin1")
        self._text_left -= len(text)
        if self._text_left < 0:
            raise pickle.UnpicklingError("more text than the file holds")
        return text.encode("latin1")

    def find_class(self, module: str, name: str) -> object:
        """Return the stub of an allowed name; any other name raises."""
        if (module, name) == ("_codecs", "encode"):
            return _CallStub(self._encode)
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not allowed in a data file")
        return _ALLOWED[module, name]


def read_pickle(raw: bytes) -> object:
    """Return the content of a pickle, with `PickledArray` for arrays; a damaged pickle can raise any exception."""
    if next(islice(pickletools.genops(raw), MAX_OPERATIONS, None), None) is not None:
        raise pickle.UnpicklingError(f"it has more than {MAX_OPERATIONS} operations")
    return _Unpickler(raw).load()


def _check_keys(keys: list[object]) -> None:
    if not all(type(key) in (str, bytes, int) for key in keys):
        raise pickle.UnpicklingError("a key is neither text nor a number")


BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
CLASSES = 10
SHAPE = (3, 32, 32)  # red, green, blue planes, row-major
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
RECORDS = 10_000  # of an official file; fewer are allowed
VALIDATION_SHARE = 10  # one training record in ten
_BINARY_FORM = FileForm(
    "binary",
    tuple(f"{BINARY}/{name}.bin" for name in (*TRAIN, TEST)),
    f"1 .. {RECORDS:,} records of a label in 0 .. {CLASSES - 1} and {PIXELS:,} pixels, a byte each",
)
_PYTHON_FORM = FileForm(
    "python",
    tuple(f"{PYTHON}/{name}" for name in (*TRAIN, TEST)),
    f"pickled dict: data, uint8 [n, {PIXELS}] with n in 1 .. {RECORDS:,}; labels, n integers in 0 .. {CLASSES - 1}",
)
FILES = FileSource("the unpacked official CIFAR-10 archive", (_BINARY_FORM, _PYTHON_FORM), usual=1)


def read_cifar(folder: Path) -> Splits:
    """Return training, validation (a tenth of the training files) and test; binary files are preferred.

    Binary files are memory-mapped: images are read on access.
    Raises: DataError if a file is missing or damaged.
    """
    form = FILES.choose_form(folder)
    read = read_binary if form is _BINARY_FORM else read_python
    samples = {name: read(folder / path) for name, path in zip((*TRAIN, TEST), form.paths, strict=True)}
    labels = torch.cat([samples[name].labels for name in TRAIN])
    pixels = StoredInputs(
        tuple(as_tensor(samples[name].inputs) for name in TRAIN), torch.arange(len(labels), device="cpu")
    )
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
        raw = read_bytes(path, MAX_BYTES)
    try:
        batch = read_pickle(raw)
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(f"{path} is not a CIFAR batch: {error_line(error)}") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: expected a dict with data and labels, got a {type(batch).__name__}")
    entries = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    array, labels = entries.get("data"), entries.get("labels")
    if not isinstance(array, PickledArray):
        raise DataError(f"{path}: data: expected a uint8 array [n, {PIXELS}], got a {type(array).__name__}")
    try:
        data = array.array()
    except ValueError as error:
        raise DataError(f"{path}: data: {error}") from None
    if data.shape[1:] != (PIXELS,) or not 1 <= len(data) <= RECORDS:
        raise DataError(f"{path}: data: expected shape [n, {PIXELS}] with n in 1 .. {RECORDS}, got {list(data.shape)}")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: labels: expected a list of {len(data)} integers")
    return _build_samples(path, data, labels)


def _build_samples(path: Path, pixels: np.ndarray, labels: object) -> Samples:
    marks = convert_labels(f"{path}: labels", labels, classes=CLASSES)
    return Samples(torch.from_numpy(pixels).unflatten(-1, SHAPE), marks)


@contextmanager
def _data_errors(path: Path) -> Iterator[None]:
    """Turn errors of opening and reading a file into a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise FILES.describe_missing(path, path.parents[1]) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from error


CIFAR = FileData("cifar", read_cifar, FILES)
