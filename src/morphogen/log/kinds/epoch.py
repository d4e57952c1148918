"""Events about one epoch: of all envs (tuples [E], [E][S]; None = not measured), of one env, and of
one slot.
"""

from typing import Literal

from typing_extensions import TypedDict

from morphogen.log.events import EnvEvent, EpochEvent, Json, SlotEvent
from morphogen.log.type_check import Count, Real, RealRow, RealTable, Share

Counts = tuple[Count, ...]
Flags = tuple[bool, ...]
Names = tuple[str, ...]
Choices = tuple[str | None, ...]  # None where the op does not use the head


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


class ActionsTaken(EpochEvent):
    """Actions of every env, their legal choices, their outcomes and the reward."""

    op: Choices
    slot: Choices
    blueprint: Choices
    style: Choices
    tempo: Choices
    alpha_target: Choices
    alpha_speed: Choices
    alpha_curve: Choices
    op_prob: RealTable  # [E][OPS]
    op_legal: tuple[Flags, ...]  # [E][OPS], like every mask here as the control narrowed it
    slot_legal: tuple[tuple[Flags, ...], ...]  # [E][OPS][S], of every op
    blueprint_legal: tuple[Flags, ...]  # [E][values], in the order of the codes
    style_legal: tuple[Flags, ...]
    tempo_legal: tuple[Flags, ...]
    alpha_target_legal: tuple[Flags, ...]
    alpha_speed_legal: tuple[Flags, ...]
    alpha_curve_legal: tuple[Flags, ...]
    # [E][heads], legal values of a head that the chosen op uses; 0: it does not
    choices: tuple[Counts, ...]
    others: tuple[Names, ...]  # the at most two most likely legal ops besides the chosen one
    log_prob: RealTable  # [E][heads]
    entropy: RealTable  # [E][heads]
    value: RealRow
    outcome: Names
    reason: Names
    forced: Flags
    reward: RealRow


class HostGradients(EpochEvent):
    """Gradients of the hosts by parameter tensor, before clipping; of runs at level debug."""

    names: Names
    norm: RealTable  # [E][names], root mean square over minibatches


class SlotsMeasured(EpochEvent):
    """Gradients and progress of every seed."""

    gradient_norm: RealTable
    gradient_health: RealTable
    gradient_ratio: RealTable
    vanishing: tuple[tuple[bool | None, ...], ...]
    exploding: tuple[tuple[bool | None, ...], ...]
    velocity: RealTable  # of the contribution, points per epoch
    interaction: RealTable  # points, summed over the partners
    age: tuple[Counts, ...]
    epochs_in_stage: tuple[Counts, ...]


class AblationsMeasured(EpochEvent):
    """Accuracies with seeds switched off, and derived numbers."""

    acc_table: RealTable  # [E][2^N]
    exact: Flags
    host_acc: RealRow
    shapley: RealTable
    interaction_sum: RealTable
    boost_received: RealTable


class AttributionMissing(EpochEvent):
    """Reason why a seed has no fresh contribution: no_player, skipped, not_exact; None
    elsewhere.
    """

    reason: tuple[Choices, ...]


class RewardsPaid(EpochEvent):
    """Rewards of every env, by component, and the debt of the reward's potential to every
    slot.
    """

    names: Names
    reward: RealRow
    components: RealTable  # [E][C]
    totals: RealTable  # [E][C], of the episode so far
    potential_by_slot: RealTable  # by Shapley value


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
    slot_rewards: dict[str, Real]  # slot -> sum of the rewards of the steps whose op addressed it
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


class TopologyRecorded(EnvEvent):
    """Fossils of an env at the end of its episode."""

    sha256: str  # of the manifest as canonical JSON
    manifest: Json


class RolledBack(EnvEvent, severity="warning"):
    """The governor put an env back to its last healthy snapshot."""

    reason: str
    loss: Real
    loss_limit: Real
    streak: Count
    penalty: Real
    seeds_pruned: Count
    snapshot_epoch: int  # -1: the reset state


class AnomalySeen(EnvEvent, severity="warning"):
    """An epoch of an env in which something was wrong and nothing was rolled back."""

    sign: str  # of the governor; none: the loss was normal
    faults: tuple[str, ...]
    loss: Real
    loss_limit: Real
    streak: Count  # consecutive anomalous epochs


class SnapshotTaken(EnvEvent):
    """The governor keeps this state of an env: a rollback leads back to it."""

    loss: Real
    fossils: Count


class HostStabilized(EnvEvent):
    """The host's loss settled for the first time in its episode."""

    stable_epochs: Count
    loss: Real


class RegimeBegan(EnvEvent):
    """The world of an env changed: the epoch is the first of another regime."""

    # number in the episode; 0 is the regime that the episode begins in, which has no event
    regime: Count
    view: str  # how images are shown
    classes: Count
    accuracy: Real  # in points, measured in the regime before


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


class GateEvaluated(SlotEvent):
    """A gate was asked."""

    gate: str
    passed: bool
    failed: tuple[str, ...]  # names of the checks


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
