"""Position of sinks, from which a run can be resumed.  No tensors."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

Count = Annotated[int, Field(ge=0)]


class FilePosition(NamedTuple):
    """Of an event file."""

    bytes: Count
    seq: Count  # number of the next line


class LoggerPosition(NamedTuple):
    """Of a logger of scalars."""

    id: str | None = None  # of the run, as a service knows it
    files: Mapping[str, Count] = {}  # file -> bytes, of those that a logger keeps itself


UNOPENED = LoggerPosition()  # not opened yet


class SinkPosition(NamedTuple):
    """Of the event file, with what it did not take, and of the loggers."""

    bytes: Count
    seq: Count
    pending: tuple[str, ...]  # lines of events that are never dropped
    dropped: Mapping[str, Count]  # event -> number of others, not told yet
    dir: str | None  # telemetry.dir
    loggers: Mapping[str, LoggerPosition]
