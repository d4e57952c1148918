"""Guarded loading of `torch.save` files from untrusted sources: nested dicts, lists, tuples, tensors, numbers.

A file runs no code and cannot claim more memory than it has bytes: its pickle may only name what builds tensors, its
tensors are mapped from the file, and they are copied only after their sizes were added up.
"""

import math
import os
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from morphogen.errors import CheckpointError
from morphogen.storage.safe_read import MAX_DEPTH, MIB, error_line, open_regular

PICKLE = "/data.pkl"
MAX_PICKLE_BYTES = 64 * MIB
MAX_VALUES = 10**7  # in one file, each counted as often as it is reached
_STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    *(f"torch {kind}Storage" for kind in _STORAGES.split(" ")),
}
_OPCODE_NAMES = """
PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS
BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE
"""
_OPCODES = frozenset(_OPCODE_NAMES.split())
_VALUE_TYPES = (bool, int, float, str, type(None))


def save_tree(tree: Any, path: Path) -> None:
    """Write a tree to a file and sync it to the disk; an OSError if it cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(tree, file)
        except RuntimeError as error:  # torch wraps the OSError of the file
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        file.flush()
        os.fsync(file.fileno())


def load_tree(path: Path, *, label: str) -> Any:
    """Return the tree of a file, tensors on the CPU, each with its own storage.

    Args:
        label: kind of file, for the error message.

    Raises: CheckpointError if the file is missing, damaged or holds anything else.
    """
    try:
        stored_bytes = _stored_bytes(path)
        tree = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        _TreeCounter(stored_bytes).count(tree, MAX_DEPTH)
        return _copy_tensors(tree)
    except FileNotFoundError:
        raise CheckpointError(f"{label} {path} is missing") from None
    except Exception as error:  # a damaged file can raise any exception
        raise CheckpointError(f"{label} {path} cannot be read: {error_line(error)}") from None


def _stored_bytes(path: Path) -> int:
    """Return the bytes of the tensors in a file, after checking its list of entries and its pickle."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        pickle = _find_pickle(entries)
        _check_pickle(archive.read(pickle))
    folder = pickle.filename.removesuffix(PICKLE) + "/data/"
    return sum(entry.file_size for entry in entries if entry.filename.startswith(folder))


def _find_pickle(entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    """Return the entry of the pickle; a ValueError unless the list is one that `torch.save` writes."""
    compressed = [
        entry
        for entry in entries
        if (entry.compress_type, entry.compress_size) != (zipfile.ZIP_STORED, entry.file_size)
    ]
    if compressed:
        raise ValueError(f"its entry {compressed[0].filename!a} is compressed, unlike those of torch.save")
    pickles = [entry for entry in entries if entry.filename.endswith(PICKLE)]
    if len(pickles) != 1 or len({entry.filename for entry in entries}) < len(entries):
        raise ValueError(f"it lists {len(pickles)} pickles in {len(entries)} entries: expected one, each entry once")
    if pickles[0].file_size > MAX_PICKLE_BYTES:
        raise ValueError(f"its pickle has {pickles[0].file_size} bytes: expected at most {MAX_PICKLE_BYTES}")
    return pickles[0]


def _check_pickle(pickle: bytes) -> None:
    """Raise a ValueError if a pickle names anything besides tensors, containers and plain values."""
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name not in _OPCODES:
            raise ValueError(f"its pickle holds {opcode.name}, which no tree of tensors needs")
        if opcode.name == "GLOBAL" and argument not in _GLOBALS:
            raise ValueError(f"its pickle names {argument!a}, which is not allowed")


class _TreeCounter:
    """Size of a tree before it is copied; a container counts each time it is reached."""

    def __init__(self, stored_bytes: int) -> None:
        self._stored_bytes = stored_bytes  # bytes of tensors in the file
        self._counts: dict[int, tuple[int, int]] = {}  # container -> its values and bytes

    def count(self, tree: Any, depth_left: int) -> tuple[int, int]:
        """Return values and tensor bytes of a tree; a ValueError if there are too many, or of another type."""
        if isinstance(tree, Tensor):
            return 1, self._tensor_bytes(tree)
        if type(tree) in _VALUE_TYPES:
            return 1, _check_value(tree)
        if type(tree) not in (dict, list, tuple):
            raise ValueError(f"it holds a {type(tree).__name__}: expected dicts, lists, tuples, tensors, plain values")
        if not depth_left:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if id(tree) not in self._counts:
            self._counts[id(tree)] = self._count_items(tree, depth_left - 1)
        return self._counts[id(tree)]

    def _count_items(self, tree: Any, depth_left: int) -> tuple[int, int]:
        if isinstance(tree, dict) and (odd := [key for key in tree if type(key) not in (str, int)]):
            raise ValueError(f"it holds the key {ascii(odd[0])[:60]}: expected names and integers")
        inner = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        counts = [self.count(value, depth_left) for value in inner]
        values, size = 1 + sum(values for values, _ in counts), sum(size for _, size in counts)
        if values > MAX_VALUES:
            raise ValueError(f"it unfolds to more than {MAX_VALUES} values")
        if size > self._stored_bytes:
            raise ValueError(f"it declares more than the {self._stored_bytes} bytes of tensors that it holds")
        return values, size

    def _tensor_bytes(self, tensor: Tensor) -> int:
        size = math.prod(tensor.shape) * tensor.element_size()
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or size > self._stored_bytes:
            raise ValueError(
                f"it declares a tensor of {list(tensor.shape)} and holds {self._stored_bytes} bytes of tensors"
            )
        return size


def _check_value(value: Any) -> int:
    """Return 0 tensor bytes for a plain value; a ValueError if other programs cannot represent it."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("it holds an integer of more than 64 bits")
    if isinstance(value, str):
        value.encode()  # a lone surrogate raises
    return 0


def _copy_tensors(tree: Any) -> Any:
    """Return the tree with copies of the tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _copy_tensors(value) for key, value in tree.items()}
    return type(tree)(map(_copy_tensors, tree)) if isinstance(tree, list | tuple) else tree
