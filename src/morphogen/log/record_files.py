"""Files of records: one a round, read by `np.load(lzma.open("records/round-000001.npz.xz"))`.  No
tensors.

Members are the columns, [T, E, ...]; `episodes`, a row per env; `meta`, JSON on the run.  The
format has a checksum.
"""

import io
import json
import lzma
import re
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from morphogen.config import files
from morphogen.errors import CheckpointError, DataError
from morphogen.log.codec import Array, unpack
from morphogen.log.round_record import Record, RoundRecord, RunFacts
from morphogen.log.run_directory import RECORDS

FORMAT = 2
NAME = re.compile(r"round-([0-9]{6,12})\.npz\.xz")
EPISODES = "episodes"
META = "meta"
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every member: equal records are equal files
PRESET = 1  # of xz
MAX_FILE_BYTES = 2**32  # of a file, and of its members
MAX_MEMORY = 2**26  # of xz
# Errors that bytes of a damaged file raise in the readers; zipfile: NotImplementedError for an
# unknown compression; numpy: the last two for a file that is no archive.
DAMAGES = (
    ValueError,
    KeyError,
    CheckpointError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    TypeError,
    AttributeError,
)


@dataclass(frozen=True, slots=True)
class RecordMeta:
    """Contents of `meta`."""

    format: int
    round: int  # from 1
    facts: RunFacts


def record_path(folder: Path, round: int) -> Path:
    """File of the record of a round (from 0), next to the event file in `folder`."""
    return folder / RECORDS / f"round-{round + 1:06}.npz.xz"


def list_records(folder: Path) -> dict[int, Path]:
    """Files of the records next to the event file in `folder`: round (from 0), ascending -> its
    file.
    """
    names = {path: NAME.fullmatch(path.name) for path in (folder / RECORDS).glob("round-*.npz.xz")}
    return dict(sorted((int(name[1]) - 1, path) for path, name in names.items() if name))


def remove_records(folder: Path, rounds: int) -> None:
    """Delete the records of rounds from `rounds` (from 0) on, and files that were not completed."""
    for round, path in list_records(folder).items():
        if round >= rounds:
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


def read_record(path: Path) -> RoundRecord:
    """Read the file of a record.  Raises: DataError that names the file if it is damaged, foreign
    or unreadable.
    """
    try:
        columns = _unpack_members(files.read_bytes(path, MAX_FILE_BYTES))
        meta = unpack(RecordMeta, files.parse_json(str(columns.pop(META))), META)
        episodes = columns.pop(EPISODES)
        ends = {name: episodes[name] for name in episodes.dtype.names or ()}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {files.error_line(error)}") from None
    except DAMAGES as error:
        raise DataError(f"{path} is damaged: {files.error_line(error)}") from None
    if meta.format != FORMAT:
        raise DataError(
            f"{path} has format {meta.format}, expected {FORMAT}: another version of morphogen "
            "wrote it"
        )
    envs = {column.shape[1:2] for column in columns.values()}
    if envs != {(meta.facts.envs,)}:
        raise DataError(f"{path} is damaged: expected columns of {meta.facts.envs} envs")
    if path.name != record_path(Path(), meta.round - 1).name:
        raise DataError(f"{path} is the record of round {meta.round}")
    return RoundRecord(meta.facts, meta.round - 1, columns, ends)


def _unpack_members(data: bytes) -> dict[str, Array]:
    source = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_MEMORY)
    content = source.decompress(data, MAX_FILE_BYTES)
    if not source.eof or source.unused_data:
        raise ValueError("expected the end of the file")
    with np.load(io.BytesIO(content), allow_pickle=False, max_header_size=1_000) as archive:
        if sum(entry.file_size for entry in archive.zip.infolist()) > MAX_FILE_BYTES:
            raise ValueError(f"expected members of at most {MAX_FILE_BYTES} bytes")
        return dict(archive)
