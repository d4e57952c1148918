"""The sinks that a configuration asks for: the event file, and the loggers of scalars."""

from pathlib import Path

from morphogen.run import directory
from morphogen.run.directory import EVENTS, RunDirectory
from morphogen.run.telemetry.scalars import Scalars, check_loggers
from morphogen.run.telemetry.writer import JsonLines, Sink
from morphogen.vocab.spec import RunSpec
from morphogen.vocab.telemetry import OFF

METRICS = "metrics"  # folder of the loggers in a run directory


def check(spec: RunSpec) -> None:
    """A ConfigError where a sink cannot be opened: its package is missing, or its file is there already."""
    check_loggers(spec.telemetry.loggers)
    if spec.telemetry.dir is not None:
        directory.check_file("telemetry.dir", Path(spec.telemetry.dir) / EVENTS)


def sinks_of(spec: RunSpec, folder: RunDirectory) -> tuple[Sink, ...]:
    """The sinks of a run that writes to a folder; none at level off.  spec is resolved."""
    own = spec.telemetry
    if own.level == OFF:
        return ()
    place = folder.path if own.dir is None else Path(own.dir)
    place.mkdir(parents=True, exist_ok=True)
    metrics = folder.path / METRICS
    loggers = (Scalars(name, metrics, own, epochs=spec.episode_length) for name in own.loggers)
    return (*loggers, JsonLines(place / EVENTS))
