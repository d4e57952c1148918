"""Events about one env: how its life ended, when it was put back, when it settled."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import TypedDict

from morphogen.storage.type_check import Count, Real
from morphogen.telemetry.events import EnvEvent, Json


class EpisodeSeed(TypedDict):
    """A seed at the end of an episode."""

    slot: str
    blueprint: str
    stage: str
    alpha: Real
    contribution: Real  # last measured


@dataclass(frozen=True, slots=True)
class EpisodeCompleted(EnvEvent):
    """One life of one host is over."""

    accuracy: float
    committed_accuracy: float
    initial_accuracy: Real
    best_accuracy: Real
    loss: Real
    success: bool
    stability: float  # (0, 1]
    reward: Real
    discounted_return: Real
    network_value: Real
    components: dict[str, Real]  # sum of each reward component
    unmeasured_steps: Count
    detectors: dict[str, Count]  # hits of each
    params: Count  # of the network as delivered
    params_ratio: float  # the same over the host's
    germinated: Count
    fossilized: Count
    contributing: Count  # fossils worth at least a point when last measured
    pruned: Count
    live: Count  # neither fossilized nor pruned
    rollbacks: Count
    ops: dict[str, Count]  # effective ops, they sum to the epochs
    instance: dict[str, Real]
    topology: tuple[EpisodeSeed, ...]


@dataclass(frozen=True, slots=True)
class TopologyRecorded(EnvEvent):
    """Fossils of an env at the end of its episode."""

    sha256: str  # of the manifest as canonical JSON
    manifest: Json


@dataclass(frozen=True, slots=True)
class RolledBack(EnvEvent):
    """The governor put an env back to its last healthy snapshot."""

    SEVERITY: ClassVar[str] = "warning"

    reason: str
    loss: Real
    loss_limit: Real
    streak: Count
    penalty: Real
    seeds_pruned: Count
    snapshot_epoch: int  # -1: the reset state


@dataclass(frozen=True, slots=True)
class AnomalySeen(EnvEvent):
    """An epoch of an env in which something was wrong and nothing was rolled back."""

    LEVEL: ClassVar[str] = "normal"
    LIFECYCLE: ClassVar[bool] = False
    SEVERITY: ClassVar[str] = "warning"

    sign: str  # of the governor; none: the loss was normal
    faults: tuple[str, ...]
    loss: Real
    loss_limit: Real
    streak: Count  # anomalous epochs in a row


@dataclass(frozen=True, slots=True)
class SnapshotTaken(EnvEvent):
    """The governor keeps this state of an env: a rollback leads back to it."""

    LEVEL: ClassVar[str] = "debug"
    LIFECYCLE: ClassVar[bool] = False

    loss: Real
    fossils: Count


@dataclass(frozen=True, slots=True)
class HostStabilized(EnvEvent):
    """The host's loss settled for the first time in its episode."""

    LEVEL: ClassVar[str] = "normal"
    LIFECYCLE: ClassVar[bool] = False

    stable_epochs: Count
    loss: Real
