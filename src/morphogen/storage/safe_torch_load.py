"""Files of `torch.save`, read although anybody may have written them: nested dicts, lists, tuples, tensors, numbers.

Nothing in such a file is run, and nothing that it merely claims takes memory: its pickle may only name what builds
tensors, its tensors are mapped from the file, and they are copied only after their sizes were added up.
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
    """Write a tree to a file, which is on the disk when this returns; an OSError where it cannot be."""
    with path.open("wb") as file:
        try:
            torch.save(tree, file)
        except RuntimeError as error:  # it hides what the file said
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        file.flush()
        os.fsync(file.fileno())


def load_tree(path: Path, *, label: str) -> Any:
    """The tree of a file, tensors on the CPU, each with a storage of its own; a CheckpointError for anything else.

    `what`: the file in words, for the message.
    """
    try:
        held = _stored_bytes(path)
        tree = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        _TreeCounter(held).count(tree, MAX_DEPTH)
        return _copy_tensors(tree)
    except FileNotFoundError:
        raise CheckpointError(f"{label} {path} is missing") from None
    except Exception as error:  # a damaged file raises whatever its damage leads to
        raise CheckpointError(f"{label} {path} cannot be read: {error_line(error)}") from None


def _stored_bytes(path: Path) -> int:
    """Bytes of tensors that a file holds, after a look at its list of entries and at its pickle."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        pickle = _find_pickle(entries)
        _check_pickle(archive.read(pickle))
    folder = pickle.filename.removesuffix(PICKLE) + "/data/"
    return sum(entry.file_size for entry in entries if entry.filename.startswith(folder))


def _find_pickle(entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    """The entry with the pickle, where the list is as `torch.save` makes it."""
    packed = [
        entry
        for entry in entries
        if (entry.compress_type, entry.compress_size) != (zipfile.ZIP_STORED, entry.file_size)
    ]
    if packed:
        raise ValueError(f"its entry {packed[0].filename!a} is compressed; want entries as torch.save makes them")
    pickles = [entry for entry in entries if entry.filename.endswith(PICKLE)]
    if len(pickles) != 1 or len({entry.filename for entry in entries}) < len(entries):
        raise ValueError(f"it lists {len(pickles)} pickles in {len(entries)} entries; want one, each entry once")
    if pickles[0].file_size > MAX_PICKLE_BYTES:
        raise ValueError(f"its pickle has {pickles[0].file_size} bytes; want at most {MAX_PICKLE_BYTES}")
    return pickles[0]


def _check_pickle(pickle: bytes) -> None:
    """A pickle that builds tensors, containers and plain values, and names nothing else."""
    for opcode, told, _ in pickletools.genops(pickle):
        if opcode.name not in _OPCODES:
            raise ValueError(f"its pickle holds {opcode.name}, which no tree of tensors needs")
        if opcode.name == "GLOBAL" and told not in _GLOBALS:
            raise ValueError(f"its pickle names {told!a}, which is not allowed")


class _TreeCounter:
    """What a tree holds, before any of it is copied; containers that are met again count again."""

    def __init__(self, stored_bytes: int) -> None:
        self._stored_bytes = stored_bytes  # bytes of tensors in the file
        self._counts: dict[int, tuple[int, int]] = {}  # container -> its values and bytes

    def count(self, tree: Any, depth_left: int) -> tuple[int, int]:
        """Values and bytes of tensors; a ValueError where there are too many, or anything else."""
        if isinstance(tree, Tensor):
            return 1, self._tensor_bytes(tree)
        if type(tree) in _VALUE_TYPES:
            return 1, _check_value(tree)
        if type(tree) not in (dict, list, tuple):
            raise ValueError(f"it holds a {type(tree).__name__}; want dicts, lists, tuples, tensors, plain values")
        if not depth_left:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if id(tree) not in self._counts:
            self._counts[id(tree)] = self._count_items(tree, depth_left - 1)
        return self._counts[id(tree)]

    def _count_items(self, tree: Any, depth_left: int) -> tuple[int, int]:
        if isinstance(tree, dict) and (odd := [key for key in tree if type(key) not in (str, int)]):
            raise ValueError(f"it holds the key {ascii(odd[0])[:60]}; want names and integers")
        inner = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        found = [self.count(value, depth_left) for value in inner]
        values, size = 1 + sum(one for one, _ in found), sum(one for _, one in found)
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
    """0, for a value that other programs can hold as well."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("it holds an integer of more than 64 bits")
    if isinstance(value, str):
        value.encode()  # half a character pair is none
    return 0


def _copy_tensors(tree: Any) -> Any:
    """The same tree, with copies of the tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _copy_tensors(value) for key, value in tree.items()}
    return type(tree)(map(_copy_tensors, tree)) if isinstance(tree, list | tuple) else tree
