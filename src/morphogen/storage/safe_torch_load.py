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
from morphogen.storage.safe_read import DEEPEST, MIB, opened, reason

PICKLE = "/data.pkl"
PICKLE_BYTES = 64 * MIB
VALUES = 10**7  # in one file, each counted as often as it is reached
_STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    *(f"torch {kind}Storage" for kind in _STORAGES.split(" ")),
}
_BUILDING = """
PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS
BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE
"""
_OPCODES = frozenset(_BUILDING.split())
_PLAIN = (bool, int, float, str, type(None))


def save(tree: Any, path: Path) -> None:
    """Write a tree to a file, which is on the disk when this returns; an OSError where it cannot be."""
    with path.open("wb") as file:
        try:
            torch.save(tree, file)
        except RuntimeError as error:  # it hides what the file said
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        file.flush()
        os.fsync(file.fileno())


def load(path: Path, *, what: str) -> Any:
    """The tree of a file, tensors on the CPU, each with a storage of its own; a CheckpointError for anything else.

    `what`: the file in words, for the message.
    """
    try:
        held = _held(path)
        tree = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        _Census(held).count(tree, DEEPEST)
        return _own(tree)
    except FileNotFoundError:
        raise CheckpointError(f"{what} {path} is missing") from None
    except Exception as error:  # a damaged file raises whatever its damage leads to
        raise CheckpointError(f"{what} {path} cannot be read: {reason(error)}") from None


def _held(path: Path) -> int:
    """Bytes of tensors that a file holds, after a look at its list of entries and at its pickle."""
    with opened(path) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        pickle = _pickle_of(entries)
        _harmless(archive.read(pickle))
    folder = pickle.filename.removesuffix(PICKLE) + "/data/"
    return sum(entry.file_size for entry in entries if entry.filename.startswith(folder))


def _pickle_of(entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
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
    if pickles[0].file_size > PICKLE_BYTES:
        raise ValueError(f"its pickle has {pickles[0].file_size} bytes; want at most {PICKLE_BYTES}")
    return pickles[0]


def _harmless(pickle: bytes) -> None:
    """A pickle that builds tensors, containers and plain values, and names nothing else."""
    for opcode, told, _ in pickletools.genops(pickle):
        if opcode.name not in _OPCODES:
            raise ValueError(f"its pickle holds {opcode.name}, which no tree of tensors needs")
        if opcode.name == "GLOBAL" and told not in _GLOBALS:
            raise ValueError(f"its pickle names {told!a}, which is not allowed")


class _Census:
    """What a tree holds, before any of it is copied; containers that are met again count again."""

    def __init__(self, held: int) -> None:
        self._held = held  # bytes of tensors in the file
        self._known: dict[int, tuple[int, int]] = {}  # container -> its values and bytes

    def count(self, tree: Any, room: int) -> tuple[int, int]:
        """Values and bytes of tensors; a ValueError where there are too many, or anything else."""
        if isinstance(tree, Tensor):
            return 1, self._bytes(tree)
        if type(tree) in _PLAIN:
            return 1, _plain(tree)
        if type(tree) not in (dict, list, tuple):
            raise ValueError(f"it holds a {type(tree).__name__}; want dicts, lists, tuples, tensors, plain values")
        if not room:
            raise ValueError(f"nested deeper than {DEEPEST}")
        if id(tree) not in self._known:
            self._known[id(tree)] = self._inside(tree, room - 1)
        return self._known[id(tree)]

    def _inside(self, tree: Any, room: int) -> tuple[int, int]:
        if isinstance(tree, dict) and (odd := [key for key in tree if type(key) not in (str, int)]):
            raise ValueError(f"it holds the key {ascii(odd[0])[:60]}; want names and integers")
        inner = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        found = [self.count(value, room) for value in inner]
        values, size = 1 + sum(one for one, _ in found), sum(one for _, one in found)
        if values > VALUES:
            raise ValueError(f"it unfolds to more than {VALUES} values")
        if size > self._held:
            raise ValueError(f"it declares more than the {self._held} bytes of tensors that it holds")
        return values, size

    def _bytes(self, tensor: Tensor) -> int:
        size = math.prod(tensor.shape) * tensor.element_size()
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or size > self._held:
            raise ValueError(f"it declares a tensor of {list(tensor.shape)} and holds {self._held} bytes of tensors")
        return size


def _plain(value: Any) -> int:
    """0, for a value that other programs can hold as well."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError("it holds an integer of more than 64 bits")
    if isinstance(value, str):
        value.encode()  # half a character pair is none
    return 0


def _own(tree: Any) -> Any:
    """The same tree, with copies of the tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _own(value) for key, value in tree.items()}
    return type(tree)(map(_own, tree)) if isinstance(tree, list | tuple) else tree
