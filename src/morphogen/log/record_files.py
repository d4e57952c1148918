"""Files of records: one a round, read by `np.load(lzma.open("records/round-000001.npz.xz"))`.  No
tensors.

Members are the columns, [T, E, ...]; `episodes`, a row per env; `meta`, JSON on the run.  The
format has a checksum. Format 1, which is still read, has files of parts of the envs
(`round-000001.rank0-of-2.npz.xz`), rounds that are not over, and columns that are 0 where the level
of an epoch (`detailed`) does not keep them.
"""

import io
import json
import lzma
import re
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from morphogen.config import files
from morphogen.errors import CheckpointError, DataError
from morphogen.log.codec import Array, Tree, unpack
from morphogen.log.round_record import (
    DEBUG,
    MINIMAL,
    NORMAL,
    Record,
    RoundRecord,
    RunFacts,
    join_records,
)
from morphogen.log.run_directory import RECORDS
from morphogen.vocab.text import format_value

FORMAT = 2
FORMER = 1
NAME = re.compile(r"round-([0-9]{6,12})(?:\.rank([0-9]{1,6})-of-([0-9]{1,6}))?\.npz\.xz")
EPISODES = "episodes"
META = "meta"
DETAILED = "detailed"
RENAMED = {"phase": "regime", "image_view": "view_code"}  # columns of format 1
LEVELS = {"minimal": MINIMAL, "normal": NORMAL, "debug": DEBUG}  # of format 1
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every member: equal records are equal files
PRESET = 1  # of xz
# of a file and of its members; of `meta`; of xz
MAX_FILE_BYTES = 2**32
MAX_META_BYTES = 2**20
MAX_MEMORY = 2**26
# Errors that bytes of a damaged file raise in the readers; zipfile: NotImplementedError for an
# unknown compression.
DAMAGES = (
    ValueError,
    KeyError,
    CheckpointError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
)


@dataclass(frozen=True, slots=True)
class RecordMeta:
    """Contents of `meta`."""

    format: int
    round: int  # from 1
    facts: RunFacts


def record_path(folder: Path, round: int, part: int = 0, parts: int = 1) -> Path:
    """File of the record of a round (from 0), or of a part of its envs, next to the event file in
    `folder`.
    """
    suffix = "" if parts == 1 else f".rank{part}-of-{parts}"
    return folder / RECORDS / f"round-{round + 1:06}{suffix}.npz.xz"


def list_records(folder: Path) -> dict[int, tuple[Path, ...]]:
    """Files of the records next to the event file in `folder`: round (from 0), ascending -> its
    files, in order.

    A round without one of its parts was not written.
    """
    names = {path.name for path in (folder / RECORDS).glob("round-*.npz.xz")}
    matches = sorted(
        {
            (int(name[1]), int(name[3] or 1))
            for name in map(NAME.fullmatch, names)
            if name is not None
        }
    )
    records: dict[int, tuple[Path, ...]] = {}
    for number, parts in matches:
        paths = tuple(
            record_path(folder, number - 1, part, parts) for part in range(min(parts, len(names)))
        )
        if number > 0 and len(paths) == parts and names.issuperset(path.name for path in paths):
            records.setdefault(number - 1, paths)
    return records


def remove_records(folder: Path, rounds: int) -> None:
    """Delete the records of rounds from `rounds` (from 0) on, and files that were not completed."""
    for path in (folder / RECORDS).glob("round-*.npz.xz"):
        name = NAME.fullmatch(path.name)
        if name is not None and int(name[1]) > rounds:
            path.unlink()
    for path in (folder / RECORDS).glob(f"{files.TEMPORARY}*"):
        path.unlink()


def encode_record(record: RoundRecord) -> bytes:
    """The bytes of the file of a record."""
    meta = asdict(RecordMeta(FORMAT, record.round + 1, record.facts))
    members = {META: np.array(json.dumps(meta)), **record.columns, EPISODES: _as_table(record.ends)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", MOMENT), "w") as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
    return lzma.compress(file.getvalue(), preset=PRESET)  # as one: columns resemble each other


def _as_table(ends: Record) -> Array:
    """Ends of episodes as rows: [E] with a field for each."""
    fields = [(name, array.dtype, array.shape[1:]) for name, array in ends.items()]
    rows = np.empty(len(ends["reward"]), dtype=fields)
    for name, array in ends.items():
        rows[name] = array
    return rows


def write_record(folder: Path, record: RoundRecord) -> None:
    """Write the record of a round next to the event file in `folder`; an earlier file is replaced.
    Raises: OSError.
    """
    path = record_path(folder, record.round)
    path.parent.mkdir(exist_ok=True)
    files.write_atomic(path, encode_record(record))


def read_round(paths: Sequence[Path]) -> RoundRecord:
    """Read the record of a round from all of its files.  Raises: DataError like `read_record`."""
    records = [read_record(path) for path in paths]
    try:
        return join_records(records)
    except (ValueError, KeyError) as error:
        raise DataError(f"{paths[-1]} does not fit {paths[0]}: {error}") from None


def read_record(path: Path) -> RoundRecord:
    """Read the file of a record.  Raises: DataError that names the file if it is damaged, foreign
    or unreadable.
    """
    try:
        members = _read_members(files.read_bytes(path, MAX_FILE_BYTES))
        record = _checked_record(files.parse_json(str(members.pop(META))), members)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {files.error_line(error)}") from None
    except DAMAGES as error:
        raise DataError(f"{path} is damaged: {files.error_line(error)}") from None
    size = record.envs
    first = record.facts.first
    if (
        path.name
        != record_path(Path(), record.round, first // size, record.facts.envs // size).name
    ):
        raise DataError(
            f"{path} is the record of round {record.round + 1}, envs {first} to {first + size - 1}"
        )
    return record


def _read_members(data: bytes) -> dict[str, Array]:
    members = dict[str, Array]()
    source = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_MEMORY)
    content = source.decompress(data, MAX_FILE_BYTES)
    if not source.eof or source.unused_data:
        raise ValueError("expected the end of the file")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        if (
            sizes.get(f"{META}.npy", MAX_META_BYTES) >= MAX_META_BYTES
            or sum(sizes.values()) > MAX_FILE_BYTES
        ):
            raise ValueError("expected a record, got members of other sizes")
        for name in sizes:
            with archive.open(name) as member:
                members[name.removesuffix(".npy")] = _read_array(member, name)
    return members


def _read_array(member: IO[bytes], name: str) -> Array:
    array = np.lib.format.read_array(member, allow_pickle=False, max_header_size=1_000)
    if member.read(1):
        raise ValueError(f"{name}: expected the end of the array")
    return array


def _checked_record(content: Tree, members: dict[str, Array]) -> RoundRecord:
    """The record of members that have the shapes and kinds of one."""
    version = content.get("format") if isinstance(content, dict) else None
    if version not in (FORMAT, FORMER):
        fault = f"format: expected {FORMER} or {FORMAT}, got {format_value(version)}"
        raise ValueError(f"{fault}: another version of morphogen wrote it")
    level = content.pop("level", None)
    detailed = members.pop(DETAILED, None)
    meta: RecordMeta = unpack(RecordMeta, content, META)
    if meta.round < 1:
        raise ValueError(f"round: expected an integer >= 1, got {meta.round}")
    episodes = members.pop(EPISODES, None)
    detail = None
    if version == FORMER:
        if level not in LEVELS or detailed is None or detailed.dtype != bool or detailed.ndim != 1:
            raise ValueError(f"expected a level and flags, got {format_value(level)}")
        detail = np.where(detailed, DEBUG, LEVELS[level])
        members = {RENAMED.get(name, name): array for name, array in members.items()}
    epochs = (
        next((len(array) for array in members.values() if array.ndim > 1), 0)
        if detail is None
        else len(detail)
    )
    shape = (epochs, _count_envs(meta.facts, members))
    for name, array in members.items():
        if array.dtype.kind not in "biuf" or array.shape[:2] != shape:
            raise ValueError(
                f"{name}: expected numbers {list(shape)}, got {array.dtype.name} "
                f"{list(array.shape)}"
            )
    ends: dict[str, Array] = {}
    if episodes is not None:
        if episodes.shape != shape[1:] or episodes.dtype.names is None:
            raise ValueError(f"{EPISODES}: expected rows [{shape[1]}], got {list(episodes.shape)}")
        ends = {name: episodes[name] for name in episodes.dtype.names}
    return RoundRecord(meta.facts, meta.round - 1, members, ends, detail)


def _count_envs(facts: RunFacts, members: dict[str, Array]) -> int:
    """Number of envs in a record: all of the run, or a part of them."""
    size = next((array.shape[1] for array in members.values() if array.ndim > 1), 0)
    if not size or facts.envs % size or facts.first % size or facts.first >= facts.envs:
        raise ValueError(
            f"expected a part of {facts.envs} envs, got {size} from env {facts.first} on"
        )
    return size
