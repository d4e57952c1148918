"""Events about one epoch: of all envs (tuples [E], [E][S]; None = not measured), of one env, and of
one slot.
"""

from typing import Literal

from typing_extensions import TypedDict

from morphogen.log.events import (
    Count,
    EnvEvent,
    EpochEvent,
    Real,
    RealRow,
    RealTable,
    Share,
    SlotEvent,
)

Counts = tuple[Count, ...]
Flags = tuple[bool, ...]
Names = tuple[str, ...]


Cause = Literal["action", "tick", "govern"]  # of a change of stage
RemovalName = Literal["action", "ramp", "governor"]
# of seeds, by cause
REMOVALS: dict[Cause, RemovalName] = {"action": "action", "tick": "ramp", "govern": "governor"}


class EpochCompleted(EpochEvent):
    """State of every env after an epoch."""

    train_loss: RealRow
    train_acc: RealRow
    val_loss: RealRow
    val_acc: RealRow
    committed_acc: RealRow
    reward: RealRow
    host_gradient_norm: RealRow
    params_ratio: RealRow  # of the network as delivered, over the host's
    skipped: Counts  # minibatches
    forwards: Counts  # passes over the validation split
    op_effective: Names
    success: Flags  # the action was executed
    stage: tuple[Names, ...]
    alpha: RealTable
    contribution: RealTable


class AblationsMeasured(EpochEvent):
    """Accuracies with seeds switched off, and derived numbers."""

    acc_table: RealTable  # [E][2^N]
    exact: Flags
    host_acc: RealRow
    shapley: RealTable
    interaction_sum: RealTable
    boost_received: RealTable


class EpisodeSeed(TypedDict):
    """A seed at the end of an episode."""

    slot: str
    blueprint: str
    stage: str
    alpha: Real
    contribution: Real  # last measured


class EpisodeCompleted(EnvEvent):
    """An episode of one host is over."""

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


class RolledBack(EnvEvent, severity="warning"):
    """The governor put an env back to its last healthy snapshot."""

    reason: str
    loss: Real
    loss_limit: Real
    streak: Count
    penalty: Real
    seeds_pruned: Count
    snapshot_epoch: int  # -1: the reset state


class SeedGerminated(SlotEvent):
    """A slot got a seed."""

    blueprint: str
    params: Count
    algorithm: str
    tempo: Count  # epochs of the first ramp
    alpha_target: Share
    accuracy: Real  # before


class StageChanged(SlotEvent):
    """A slot changed its stage; values as of before the move."""

    from_: str
    to: str
    cause: Cause
    blueprint: str | None
    alpha: Real
    age: Count
    epochs_in_stage: Count


class SeedFossilized(SlotEvent):
    """A seed is kept for good; values as of the last epoch before."""

    blueprint: str
    params: Count
    age: Count
    contribution: Real
    shapley: Real
    accuracy_change: Real  # since germination, the host's own progress included


class SeedPruned(SlotEvent):
    """A seed is gone; values as of the last epoch before."""

    blueprint: str
    params: Count
    age: Count
    reason: RemovalName
    contribution: Real
    accuracy_change: Real
