"""Whether the sinks that a configuration asks for can be opened.  No torch."""

from pathlib import Path

from morphogen.run import directory
from morphogen.run.telemetry.scalars import check_loggers
from morphogen.vocab.spec import RunSpec

METRICS = "metrics"  # folder of the loggers in a run directory


def check(spec: RunSpec) -> None:
    """A ConfigError where a sink cannot be opened: its package is missing, or its file is there already."""
    check_loggers(spec.telemetry.loggers)
    if spec.telemetry.dir is not None:
        directory.check_file("telemetry.dir", Path(spec.telemetry.dir) / directory.EVENTS)
