"""Check before a run that its sinks can be opened.  No torch."""

from pathlib import Path

from morphogen.config.spec import RunSpec
from morphogen.storage import run_directory
from morphogen.telemetry.scalars import check_loggers

METRICS_FOLDER = "metrics"  # folder of the loggers in a run directory


def check_sinks(spec: RunSpec) -> None:
    """Raise a ConfigError if a sink cannot be opened: its package is missing, or its file exists."""
    check_loggers(spec.telemetry.loggers)
    if spec.telemetry.dir is not None:
        run_directory.check_new_file("telemetry.dir", Path(spec.telemetry.dir) / run_directory.EVENTS)
