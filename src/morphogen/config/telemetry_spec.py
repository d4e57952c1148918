"""Events and metrics of a run, and their destinations.  No setting here changes a number of the run."""

from dataclasses import dataclass, field
from typing import ClassVar

from morphogen.config.fields import Choice, Flag, Int, Names, PerKey, Real, Spec, Text, nested, spec_field
from morphogen.config.instance_spec import FROM_TASK
from morphogen.vocab.action import HEADS

LEVELS = ("off", "minimal", "normal", "debug")  # each writes what the one before writes, and more
LEVEL_OFF, LEVEL_DEBUG = LEVELS[0], LEVELS[-1]
LOGGERS = ("csv", "tensorboard", "wandb", "mlflow")
ONLINE, OFFLINE, DISABLED = "online", "offline", "disabled"

_HEAD_LIMITS = {"slot": 0.10, "blueprint": 0.05, "tempo": 0.05}  # heads whose entropy has a limit of its own
# Limits of the anomaly rules, by name; every comparison is strict.
LIMITS: dict[str, float] = {
    "ratio_explosion": 5.0,
    "ratio_collapse": 0.1,
    "kl_extreme": 0.5,  # nats
    "kl_spike": 0.1,
    "value_loss": 5.0,  # on the normalised return scale
    "td_error": 5.0,
    **{f"entropy_{head}": _HEAD_LIMITS.get(head, 0.08) for head in HEADS},  # 0 .. 1
    "entropy_clear": 1.5,  # times the limit of the head
    "entropy_rounds": 3,
    "gradient_drift": 4.0,  # of the average norm: a healthy norm is three times the average now and then
    "hidden_explosion": 10.0,  # rms
    "hidden_vanishing": 1e-6,
    "behaviour_gap": 1e-3,  # nats
    "observation_clipped": 0.01,  # share
    "young_rounds": 2,  # in which drift and clipping are not judged: one round is no past to compare with
    "envs_nonfinite": 0.0,  # share of envs
    "rollbacks": 0.25,  # per env
    "wait_only": 0.95,  # share of free steps
    "wait_rounds": 3,
    "memory": 0.85,  # reserved share of a device
    "memory_rounds": 10,  # from one warning to the next
    "drop_progress": 0.1,  # share of the run before which no drop is told
    "drop": 0.1,  # share of the rolling accuracy
}
_LIMITS = PerKey(names=tuple(LIMITS), defaults=tuple(LIMITS.values()), each=(Real(low=0),) * len(LIMITS))


@dataclass(frozen=True)
class WandbSpec(Spec):
    """Appearance of a run at Weights & Biases."""

    PATH: ClassVar[str] = "telemetry.wandb"

    project: str | None = spec_field(None, Text(what="a name", null="morphogen"))
    entity: str | None = spec_field(None, Text(what="a name", null="that of the account"))
    group: str | None = spec_field(None, Text(what="a name", null="none"))
    name: str | None = spec_field(None, Text(what="a name", null="that of the run directory"))
    tags: tuple[str, ...] = spec_field((), Names())
    mode: str = spec_field(ONLINE, Choice(names=(ONLINE, OFFLINE, DISABLED)))


@dataclass(frozen=True)
class TelemetrySpec(Spec):
    """Level and destination of events, and limits of anomalies."""

    PATH: ClassVar[str] = "telemetry"

    level: str = spec_field("normal", Choice(names=LEVELS))
    lifecycle_only: bool = spec_field(False, Flag())  # of all events only those that are never dropped
    escalate: bool = spec_field(True, Flag())  # raise the level for a while after an anomaly or a rollback
    escalation_epochs: int = spec_field(5, Int(low=1))
    dir: str | None = spec_field(None, Text(what="a path", null="the run directory"))  # of the event file
    loggers: tuple[str, ...] = spec_field((), Names(among=LOGGERS))
    wandb: WandbSpec = field(default_factory=WandbSpec, metadata=nested(WandbSpec))
    queue: int = spec_field(64, Int(low=1))  # epochs and rounds that wait for a sink
    close_timeout_s: float = spec_field(30.0, Real(above=0))
    plateau_threshold: float = spec_field(None, Real(low=0, null=FROM_TASK))  # points of rolling accuracy
    improvement_threshold: float = spec_field(None, Real(low=0, null=FROM_TASK))
    limits: tuple[float, ...] = spec_field(_LIMITS.defaults, _LIMITS)
    console: bool = spec_field(True, Flag())

    @property
    def limits_by_name(self) -> dict[str, float]:
        """The limits by name."""
        return dict(zip(LIMITS, self.limits, strict=True))

    @property
    def escalates(self) -> bool:
        """Return whether the level can be raised."""
        return self.escalate and not self.lifecycle_only and self.level not in (LEVEL_OFF, LEVEL_DEBUG)
