"""Log and loggers of a run.  No setting here changes a number of the run."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from morphogen.config.extra_settings import with_extras
from morphogen.config.fields import (
    Count,
    FilePath,
    Names,
    NonNegative,
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
        morphogen.errors.ConfigError: telemetry.queue: expected a number
            greater than or equal to 1, got 0
    """

    PATH: ClassVar[str] = "telemetry"

    level: Literal["off", "normal"] = "normal"
    """off or normal (default normal): nothing, or the log"""
    dir: FilePath | None = None
    """folder of the event file and the records (default: the run directory)"""
    loggers: Annotated[tuple[str, ...], Names(among=LOGGERS)] = ()
    """loggers that scalars are written to as well, as `morphogen config telemetry.loggers` lists"""
    queue: Count = 256
    """MiB of rounds that wait for a slow logger before the run waits for it"""
    close_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """seconds that a run waits for a logger, at most a day"""
    plateau_threshold: NonNegative = 0.5
    """points of rolling accuracy below which a round is on a plateau"""
    improvement_threshold: NonNegative = 2.0
    """points of rolling accuracy above which a round is an improvement or a drop"""
    console: bool = True
    """print progress and tables"""
