"""Log and loggers of a run.  No setting here changes a number of the run."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from morphogen.config.extra_settings import with_extras
from morphogen.config.fields import (
    BY_TASK,
    OUTPUT,
    UNSET,
    Count,
    FilePath,
    Flag,
    Names,
    NonNegative,
    Null,
    Spec,
    spec,
)
from morphogen.config.parts import LOGGERS

LEVEL_OFF = "off"


@spec
@with_extras
class TelemetrySpec(Spec):
    """Destination of the log and of loggers.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.TelemetrySpec(queue=64).level
        'normal'
        >>> mg.TelemetrySpec(queue=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: telemetry.queue: expected an integer >= 1 and < 2^63, got 0
    """

    PATH: ClassVar[str] = "telemetry"

    level: Annotated[Literal["off", "normal"], Flag("--telemetry-level", "L", OUTPUT)] = "normal"
    """off or normal (default normal): nothing, or the log"""
    dir: Annotated[
        FilePath | None, Null("the run directory"), Flag("--telemetry-dir", "DIR", OUTPUT)
    ] = None
    """folder of the event file and the records (default: the run directory)"""
    loggers: Annotated[tuple[str, ...], Names(among=LOGGERS), Flag("--logger", "NAME", OUTPUT)] = ()
    """loggers that scalars are written to as well, as `morphogen config telemetry.loggers` lists"""
    queue: Count = 256
    """MiB of rounds that wait for a slow logger before the run waits for it"""
    close_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """seconds that a run waits for a logger, at most a day"""
    plateau_threshold: Annotated[NonNegative, Null(BY_TASK)] = UNSET
    """points of rolling accuracy below which a round is on a plateau"""
    improvement_threshold: Annotated[NonNegative, Null(BY_TASK)] = UNSET
    """points of rolling accuracy above which a round is an improvement or a drop"""
    console: bool = True
    """print progress and tables"""
