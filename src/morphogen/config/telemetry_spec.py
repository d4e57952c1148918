"""Events and metrics of a run, and their destinations.  No setting here changes a number of the run."""

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from morphogen.config.fields import BY_TASK, OUTPUT, Count, FilePath, Name, Names, NonNegative, Null, Spec, option, spec

LEVELS = ("off", "minimal", "normal", "debug")  # each writes what the one before writes, and more
LEVEL_OFF, LEVEL_DEBUG = LEVELS[0], LEVELS[-1]
LOGGERS = ("csv", "tensorboard", "wandb", "mlflow")
ONLINE, OFFLINE, DISABLED = "online", "offline", "disabled"


class AnomalyLimits(NamedTuple):
    """Limits of the anomaly rules; every comparison is strict."""

    ratio_explosion: NonNegative = 5.0
    ratio_collapse: NonNegative = 0.1
    kl_extreme: NonNegative = 0.5  # nats
    kl_spike: NonNegative = 0.1
    value_loss: NonNegative = 5.0  # on the normalised return scale
    td_error: NonNegative = 5.0
    entropy_op: NonNegative = 0.08  # of each head: 0 .. 1
    entropy_slot: NonNegative = 0.10
    entropy_blueprint: NonNegative = 0.05
    entropy_style: NonNegative = 0.08
    entropy_tempo: NonNegative = 0.05
    entropy_alpha_target: NonNegative = 0.08
    entropy_alpha_speed: NonNegative = 0.08
    entropy_alpha_curve: NonNegative = 0.08
    entropy_clear: NonNegative = 1.5  # times the limit of the head
    entropy_rounds: NonNegative = 3.0
    gradient_drift: NonNegative = 4.0  # of the average norm: a healthy norm is three times the average now and then
    hidden_explosion: NonNegative = 10.0  # rms
    hidden_vanishing: NonNegative = 1e-6
    behaviour_gap: NonNegative = 1e-3  # nats
    observation_clipped: NonNegative = 0.01  # share
    young_rounds: NonNegative = 2.0  # without judgement of drift and clipping: one round is no past to compare with
    envs_nonfinite: NonNegative = 0.0  # share of envs
    rollbacks: NonNegative = 0.25  # per env
    wait_only: NonNegative = 0.95  # share of free steps
    wait_rounds: NonNegative = 3.0
    memory: NonNegative = 0.85  # reserved share of a device
    memory_rounds: NonNegative = 10.0  # from one warning to the next
    drop_progress: NonNegative = 0.1  # share of the run before which no drop is reported
    drop: NonNegative = 0.1  # share of the rolling accuracy


@spec
class WandbSpec(Spec):
    """Appearance of a run at Weights & Biases."""

    PATH: ClassVar[str] = "telemetry.wandb"

    project: Annotated[Name | None, Null("morphogen")] = option(
        None, "--wandb-project", "NAME", OUTPUT, "project (default morphogen)"
    )
    entity: Annotated[Name | None, Null("that of the account")] = option(
        None, "--wandb-entity", "NAME", OUTPUT, "team or user"
    )
    group: Annotated[Name | None, Null("none")] = option(None, "--wandb-group", "NAME", OUTPUT, "group of runs")
    name: Annotated[Name | None, Null("that of the run directory")] = option(
        None, "--wandb-name", "NAME", OUTPUT, "name (default: that of the run directory)"
    )
    tags: Annotated[tuple[str, ...], Names()] = option((), "--wandb-tags", "TAG", OUTPUT, "tags")
    mode: Literal["online", "offline", "disabled"] = option(
        ONLINE, "--wandb-mode", "MODE", OUTPUT, "online (default), offline, disabled"
    )


@spec
class TelemetrySpec(Spec):
    """Level and destination of events, and limits of anomalies."""

    PATH: ClassVar[str] = "telemetry"

    level: Literal["off", "minimal", "normal", "debug"] = option(
        "normal", "--telemetry-level", "L", OUTPUT, f"{', '.join(LEVELS)} (default normal)"
    )
    lifecycle_only: bool = option(
        False, "--lifecycle-only", "", OUTPUT, "only events about the stages of seeds and about hosts"
    )
    escalate: bool = True  # raise the level for a while after an anomaly or a rollback
    escalation_epochs: Count = 5
    dir: Annotated[FilePath | None, Null("the run directory")] = option(
        None, "--telemetry-dir", "DIR", OUTPUT, "folder of the event file (default: the run directory)"
    )
    loggers: Annotated[tuple[str, ...], Names(among=LOGGERS)] = option(
        (), "--logger", "NAME", OUTPUT, f"also write scalars to {', '.join(LOGGERS)}"
    )
    wandb: WandbSpec = WandbSpec()
    queue: Count = 64  # epochs and rounds that wait for a sink
    close_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0  # at most a day
    plateau_threshold: Annotated[NonNegative, Null(BY_TASK)] = option(None)  # points of rolling accuracy
    improvement_threshold: Annotated[NonNegative, Null(BY_TASK)] = option(None)
    limits: AnomalyLimits = AnomalyLimits()
    console: bool = True

    @property
    def escalates(self) -> bool:
        """Return whether the level can be raised."""
        return self.escalate and not self.lifecycle_only and self.level not in (LEVEL_OFF, LEVEL_DEBUG)
