"""Events: one frozen dataclass per kind, the envelope around it, and one JSON line for both.  No tensors here.

Numbers are tidied when an event is made: at most 7 significant digits, None for what is not finite; so an event read
back from its line equals the one that was written.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

Json = dict[str, Any]


def tidy(value: Any) -> Any:
    """A value as events hold it: 7 significant digits, None for NaN and infinities, tuples for lists."""
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): tidy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(tidy(inner) for inner in value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return tidy(value.tolist())
    raise TypeError(f"an event cannot hold a {type(value).__name__}")


class Event:
    """Base of the payloads."""

    __slots__ = ()
    NAME: ClassVar[str] = ""  # of the event, where the dataclass is called differently
    LEVEL: ClassVar[str] = "minimal"  # lowest level at which it is written
    LIFECYCLE: ClassVar[bool] = True  # never dropped
    SEVERITY: ClassVar[str] = "info"

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, one.name, tidy(getattr(self, one.name)))

    def payload(self) -> Json:
        """The fields by name, as they stand in the file (`from_` without the underscore)."""
        return {one.name.rstrip("_"): getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event and what it is about; None where a coordinate does not apply."""

    data: Event
    round: int | None = None
    epoch: int | None = None
    env: int | None = None
    episode: int | None = None
    slot: str | None = None

    @property
    def name(self) -> str:
        """The name of the event: that of its dataclass, or what the dataclass says."""
        return self.data.NAME or type(self.data).__name__


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """Set-up is done."""

    run_id: str
    command: str
    task: str
    preset: str | None
    config: Json
    config_sha256: str
    data_sha256: str
    data_placement: str  # resident or streamed
    seed: int
    envs: int
    slots: tuple[str, ...]
    rounds: int
    epochs: int
    minibatches: int
    batch: int
    devices: tuple[str, ...]
    compile: str  # mode
    host_params: int
    obs_dim: int
    policy_params: int
    versions: Json


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A checkpoint is complete."""

    path: str
    kind: str  # periodic, final, stop
    size_bytes: int
    save_s: float


@dataclass(frozen=True, slots=True)
class Evaluated(Event):
    """The frozen policy was judged on held-out instances; each metric as {mean, low, high}, 95 % interval."""

    episodes: int
    split: str
    network_value: Json
    committed_accuracy: Json
    params_ratio: Json
    success_share: Json
    stability: Json


@dataclass(frozen=True, slots=True)
class RunCompleted(Event):
    """The last event of a run."""

    status: str  # completed, stopped, failed
    rounds_done: int
    best_round: int | None
    best_accuracy: float | None
    error: str | None
    run_s: float
    graphs: int = 0  # compiled in this run
    graph_fallbacks: int = 0  # epochs and resets that ran eager, for want of a graph


@dataclass(frozen=True, slots=True)
class BatchSummary(Event):
    """One round in numbers; means are over all envs, final values are those of the last epoch."""

    NAME: ClassVar[str] = "RoundCompleted"
    LIFECYCLE: ClassVar[bool] = False

    round: int
    episodes_completed: int
    accuracy_mean: float  # percent, like every accuracy
    accuracy_std: float
    accuracy_min: float
    accuracy_max: float
    committed_mean: float
    loss_mean: float | None
    rolling_accuracy: float  # mean of accuracy_mean over the last at most 10 rounds
    reward_mean: float  # sum of an episode's rewards
    reward_std: float
    return_mean: float  # discounted
    network_value_mean: float
    params_ratio_mean: float
    stability_mean: float
    germinated: int
    fossilized: int
    contributing: int
    pruned: int
    live: int
    rollbacks: int
    success_share: float
    env_accuracy: tuple[float, ...]
    env_committed: tuple[float, ...]
    env_reward: tuple[float, ...]
    updated: bool  # the policy made at least one optimiser step
    anomalies: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)  # of the rollout
    update_s: float = field(default=0.0, compare=False)  # of the policy
    env_epochs_per_s: float = field(default=0.0, compare=False)
    samples_per_s: float = field(default=0.0, compare=False)  # that hosts were trained on
    host_wait_time_share: float | None = field(default=None, compare=False)  # standing still in fences
    data_wait_time_share: float | None = field(default=None, compare=False)  # drawing and gathering minibatches
    compile_s: float = field(default=0.0, compare=False)  # in none of the other times
    phases: Json = field(default_factory=dict, compare=False)  # wall_s, host_cpu_s, device_s, count of each
    memory: tuple[Json, ...] = field(default=(), compare=False)  # bytes on each CUDA device
    graphs: int = 0  # compiled in this round
    graph_fallbacks: int = 0  # those of this round that ran eager, for want of a graph


@dataclass(frozen=True, slots=True)
class EpisodeCompleted(Event):
    """One life of one host is over."""

    accuracy: float
    committed_accuracy: float
    initial_accuracy: float
    best_accuracy: float
    loss: float | None
    success: bool
    stability: float  # (0, 1]
    reward: float
    discounted_return: float
    network_value: float
    components: Json  # sum of each reward component
    unmeasured_steps: int
    detectors: Json  # hits of each
    params: int  # of the network as delivered
    params_ratio: float  # the same over the host's
    germinated: int
    fossilized: int
    contributing: int  # fossils worth at least a point when last measured
    pruned: int
    live: int  # neither fossilized nor pruned
    rollbacks: int
    ops: Json  # effective ops, they sum to the epochs
    instance: Json
    topology: tuple[Json, ...]  # slot, blueprint, stage, alpha, contribution of every seed


@dataclass(frozen=True, slots=True)
class TopologyRecorded(Event):
    """What was grown for good: the fossils of an env at the end of its life."""

    sha256: str  # of the manifest as canonical JSON
    manifest: Json


@dataclass(frozen=True, slots=True)
class RolledBack(Event):
    """The governor put an env back to its last healthy snapshot."""

    SEVERITY: ClassVar[str] = "warning"

    reason: str
    loss: float | None
    loss_limit: float | None
    streak: int
    penalty: float
    seeds_pruned: int
    snapshot_epoch: int  # -1: the reset state


@dataclass(frozen=True, slots=True)
class HostStabilized(Event):
    """The host's loss settled for the first time in its episode."""

    LEVEL: ClassVar[str] = "normal"
    LIFECYCLE: ClassVar[bool] = False

    stable_epochs: int
    loss: float | None


@dataclass(frozen=True, slots=True)
class SeedGerminated(Event):
    """A slot got a seed."""

    blueprint: str
    params: int
    algorithm: str
    tempo: int  # epochs of the first ramp
    alpha_target: float
    accuracy: float  # before


@dataclass(frozen=True, slots=True)
class StageChanged(Event):
    """A slot changed its stage; values as of before the move."""

    from_: str
    to: str
    cause: str  # action, tick, govern
    blueprint: str | None
    alpha: float
    age: int
    epochs_in_stage: int


@dataclass(frozen=True, slots=True)
class GateEvaluated(Event):
    """A gate was asked."""

    LEVEL: ClassVar[str] = "normal"
    LIFECYCLE: ClassVar[bool] = False

    gate: str
    passed: bool
    failed: tuple[str, ...]  # names of the checks


@dataclass(frozen=True, slots=True)
class SeedFossilized(Event):
    """A seed is kept for good; values as of the last epoch before."""

    blueprint: str
    params: int
    age: int
    contribution: float | None
    shapley: float | None
    accuracy_change: float  # since germination, the host's own progress included


@dataclass(frozen=True, slots=True)
class SeedPruned(Event):
    """A seed is gone; values as of the last epoch before."""

    blueprint: str
    params: int
    age: int
    reason: str  # action, ramp, governor
    contribution: float | None
    accuracy_change: float
