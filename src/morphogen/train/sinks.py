"""Sinks of a run, opened at a position: the log and the loggers of scalars."""

import contextlib
import json
import shutil
from pathlib import Path

from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import to_settings
from morphogen.config.parts import LOGGERS
from morphogen.config.spec import RunSpec
from morphogen.config.telemetry_spec import LEVEL_OFF
from morphogen.errors import CheckpointError
from morphogen.log import run_directory
from morphogen.log.log_file import LogFile, LogPosition
from morphogen.log.record_files import remove_records
from morphogen.log.run_directory import EVENTS, METRICS, RECORDS, RunDirectory, events_folder
from morphogen.log.writer import LoggerPlace, Sink

DAMAGE = (OSError, ValueError, TypeError, KeyError, RecursionError)  # of JSON that is read


def check_sinks(spec: RunSpec) -> None:
    """Raise a ConfigError before a run if a sink cannot be opened: its package is missing, or its
    file exists.
    """
    for name in spec.telemetry.loggers:
        LOGGERS[name].check()
    if spec.telemetry.dir is not None:
        _check_new_files(Path(spec.telemetry.dir))


def _check_new_files(folder: Path) -> None:
    for name in (EVENTS, RECORDS):
        run_directory.check_new_file("telemetry.dir", folder / name)


def open_sinks(
    spec: RunSpec, folder: RunDirectory, position: LogPosition | None = None
) -> tuple[tuple[Sink, ...], int]:
    """Open the sinks of a run; return them, none at level off, and the number of bytes cut from the
    event file.

    Args:
        spec: resolved; if `telemetry.dir` has changed, a new event file begins there and its
        numbering continues.
        position: result of `LogWriter.drain`; None: a new run.

    Raises: CheckpointError like `check_position`, before any file is changed.
    """
    if not folder.is_writer:
        return (), 0
    metrics = folder.path / METRICS
    if position is None:  # metrics of a run that stopped before its first checkpoint
        shutil.rmtree(metrics, ignore_errors=True)
    if spec.telemetry.level == LEVEL_OFF:
        return (), 0
    for name in spec.telemetry.loggers:
        LOGGERS[name].check()
    at, surplus = check_position(spec, folder, position)
    path = events_folder(folder.path, spec.telemetry.dir) / EVENTS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = LogFile(path, first_seq=at.seq, size=at.bytes)
        remove_records(path.parent, at.rounds)  # the run writes them again
        file.write_lines(list(at.pending))
    except OSError as error:
        raise CheckpointError(f"event file {path} cannot be written: {error.strerror}") from error
    config = dict(flatten_settings(to_settings(spec)))
    place = LoggerPlace(metrics, folder.path, spec.episode_length, at.rounds, config)
    loggers = (LOGGERS[name](place, spec.telemetry) for name in spec.telemetry.loggers)
    return (file, *loggers), surplus


def check_position(
    spec: RunSpec, folder: RunDirectory, position: LogPosition | None
) -> tuple[LogPosition, int]:
    """Return the position at which a resumed run writes, and the bytes after it; nothing is
    changed.

    Raises: CheckpointError if the event file is of another run, or incomplete before the position.
    """
    telemetry = spec.telemetry
    path = events_folder(folder.path, spec.telemetry.dir) / EVENTS
    at = position or LogPosition(0, 0, (), 0, telemetry.dir)
    if telemetry.level == LEVEL_OFF:
        return at, 0
    if at.dir != telemetry.dir:
        _check_new_files(path.parent)
        at = at._replace(bytes=0)
    return at, _count_surplus(path, at, folder) if path.exists() or at.bytes else 0


def _count_surplus(path: Path, position: LogPosition, folder: RunDirectory) -> int:
    """Return the bytes of an event file after `position`; CheckpointError unless the file is
    complete up to there, and of this run.
    """
    fault = f"event file {path}"
    expected = f"expected a file of at least {position.bytes} bytes"
    if not path.is_file():
        raise CheckpointError(f"{fault} is missing: {expected}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{fault} cannot be read: {error.strerror}") from error
    if len(data) < position.bytes:
        raise CheckpointError(f"{fault} has {len(data)} bytes: {expected}")
    if position.bytes and not _is_own(data[: position.bytes], position, folder):
        run = folder.read_manifest()["run_id"]
        raise CheckpointError(f"{fault}: expected the lines of run {run} up to the checkpoint")
    return len(data) - position.bytes


def _is_own(data: bytes, position: LogPosition, folder: RunDirectory) -> bool:
    """Return whether lines begin with the RunStarted of this run, or later in its numbering, and
    end before the number of the position.
    """
    with contextlib.suppress(*DAMAGE):
        lines = data.splitlines(keepends=True)
        first, last = json.loads(lines[0]), json.loads(lines[-1])
        run = folder.read_manifest()["run_id"]
        is_begin = first["seq"] > 0 or first["data"]["run_id"] == run
        return is_begin and last["seq"] == position.seq - 1 and data.endswith(b"\n")
    return False
