"""Log, loggers and alarms of a run.  No setting here changes a number of the run."""

from typing import Annotated, ClassVar, Literal, NamedTuple

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

# debug also measures gradients of the parameter tensors of hosts
LEVELS = ("off", "normal", "debug")
LEVEL_OFF = LEVELS[0]
LEVEL_DEBUG = LEVELS[-1]


class AnomalyLimits(NamedTuple):
    """Limits of the alarms; every comparison is strict."""

    ratio_explosion: Annotated[
        NonNegative, Field(description="probability ratio above it is an alarm")
    ] = 5.0
    ratio_collapse: Annotated[
        NonNegative, Field(description="probability ratio below it is an alarm")
    ] = 0.1
    kl_extreme: Annotated[NonNegative, Field(description="divergence in nats that is an error")] = (
        0.5
    )
    kl_spike: Annotated[NonNegative, Field(description="divergence in nats that is a warning")] = (
        0.1
    )
    value_loss: Annotated[
        NonNegative, Field(description="loss of the critic, on the scale of normalised returns")
    ] = 5.0
    td_error: Annotated[
        NonNegative, Field(description="mean absolute error of one-step values, on that scale")
    ] = 5.0
    entropy_op: Annotated[
        NonNegative,
        Field(
            description="entropy of the head op, as a share of its first one, below which it is "
            "collapsed"
        ),
    ] = 0.08
    entropy_slot: Annotated[
        NonNegative,
        Field(
            description="entropy of the head slot, as a share of its first one, below which it is "
            "collapsed"
        ),
    ] = 0.10
    entropy_blueprint: Annotated[
        NonNegative,
        Field(
            description="entropy of the head blueprint, as a share of its first one, below which "
            "it is collapsed"
        ),
    ] = 0.05
    entropy_style: Annotated[
        NonNegative,
        Field(
            description="entropy of the head style, as a share of its first one, below which it is "
            "collapsed"
        ),
    ] = 0.08
    entropy_tempo: Annotated[
        NonNegative,
        Field(
            description="entropy of the head tempo, as a share of its first one, below which it is "
            "collapsed"
        ),
    ] = 0.05
    entropy_alpha_target: Annotated[
        NonNegative,
        Field(
            description="entropy of the head alpha_target, as a share of its first one, below "
            "which it is collapsed"
        ),
    ] = 0.08
    entropy_alpha_speed: Annotated[
        NonNegative,
        Field(
            description="entropy of the head alpha_speed, as a share of its first one, below "
            "which it is collapsed"
        ),
    ] = 0.08
    entropy_alpha_curve: Annotated[
        NonNegative,
        Field(
            description="entropy of the head alpha_curve, as a share of its first one, below "
            "which it is collapsed"
        ),
    ] = 0.08
    entropy_clear: Annotated[
        NonNegative, Field(description="times the limit of a head above which its collapse is over")
    ] = 1.5
    entropy_rounds: Annotated[
        NonNegative, Field(description="consecutive rounds below the limit that are a collapse")
    ] = 3.0
    entropy_until: Annotated[
        NonNegative, Field(description="share of the run after which a decided policy is no alarm")
    ] = 0.5
    frozen_kl: Annotated[
        NonNegative, Field(description="divergence in nats below which an update moved nothing")
    ] = 1e-6
    frozen_rounds: Annotated[
        NonNegative, Field(description="consecutive rounds without a move that are an alarm")
    ] = 3.0
    critic_variance: Annotated[
        float,
        Field(description="share of the variance of returns below which a critic explains nothing"),
    ] = 0.05
    critic_rounds: Annotated[
        NonNegative,
        Field(description="consecutive rounds in which it explains nothing that are an alarm"),
    ] = 10.0
    return_gap: Annotated[
        NonNegative,
        Field(description="deviations between the returns of the rewards and of the learner"),
    ] = 0.5
    return_rounds: Annotated[
        NonNegative, Field(description="consecutive rounds with such a gap that are an alarm")
    ] = 3.0
    gradient_drift: Annotated[
        NonNegative, Field(description="gradient norm over its running average")
    ] = 4.0
    hidden_explosion: Annotated[
        NonNegative, Field(description="root mean square of the memory above it is an alarm")
    ] = 10.0
    hidden_vanishing: Annotated[
        NonNegative, Field(description="root mean square of the memory below it is an alarm")
    ] = 1e-6
    behaviour_gap: Annotated[
        NonNegative,
        Field(description="nats between the recorded and the recomputed log-probabilities"),
    ] = 1e-3
    observation_clipped: Annotated[
        NonNegative, Field(description="share of features that are clipped")
    ] = 0.01
    young_rounds: Annotated[
        NonNegative, Field(description="first rounds without judgement of drift and clipping")
    ] = 2.0
    envs_nonfinite: Annotated[
        NonNegative, Field(description="share of envs with skipped steps")
    ] = 0.0
    rollbacks: Annotated[NonNegative, Field(description="rollbacks per env in a round")] = 0.25
    wait_only: Annotated[
        NonNegative, Field(description="share of WAIT among the steps with a choice")
    ] = 0.95
    wait_rounds: Annotated[
        NonNegative, Field(description="consecutive rounds of waiting that are reported")
    ] = 3.0
    memory: Annotated[
        NonNegative, Field(description="reserved share of the memory of a device")
    ] = 0.85
    memory_rounds: Annotated[
        NonNegative, Field(description="rounds from one warning about memory to the next")
    ] = 10.0
    drop_progress: Annotated[
        NonNegative, Field(description="share of the run before which no drop is reported")
    ] = 0.1
    drop: Annotated[
        NonNegative, Field(description="fall of the rolling accuracy, as its share")
    ] = 0.1


@spec
@with_extras
class TelemetrySpec(Spec):
    """Destination of the log and of loggers, and limits of alarms.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.TelemetrySpec(queue=64).level
        'normal'
        >>> mg.TelemetrySpec(limits={"kl_spike": -1})
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: telemetry.limits.kl_spike: expected a number >= 0, got -1
    """

    PATH: ClassVar[str] = "telemetry"

    level: Annotated[Literal["off", "normal", "debug"], Flag("--telemetry-level", "L", OUTPUT)] = (
        "normal"
    )
    """off, normal, debug (default normal): nothing, the log, and gradients of every layer of the
    hosts too
    """
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
    limits: AnomalyLimits = AnomalyLimits()
    console: bool = True
    """print progress and tables"""
