"""Events about one epoch of all envs: tuples over envs, [E], and over envs and slots, [E][S]; None = not measured."""

from dataclasses import dataclass
from typing import ClassVar

from morphogen.storage.type_check import Count, RealRow, RealTable
from morphogen.telemetry.events import EpochEvent

Counts = tuple[Count, ...]
Flags = tuple[bool, ...]
Names = tuple[str, ...]
Choices = tuple[str | None, ...]  # None where the op does not use the head


@dataclass(frozen=True, slots=True)
class EpochCompleted(EpochEvent):
    """State of every env after an epoch."""

    LEVEL: ClassVar[str] = "normal"

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


@dataclass(frozen=True, slots=True)
class ActionsTaken(EpochEvent):
    """Actions of every env, their legal choices and their outcomes."""

    op: Choices
    slot: Choices
    blueprint: Choices
    style: Choices
    tempo: Choices
    alpha_target: Choices
    alpha_speed: Choices
    alpha_curve: Choices
    op_prob: RealTable  # [E][OPS]
    op_legal: tuple[Flags, ...]  # [E][OPS]
    others: tuple[Names, ...]  # the at most two most likely legal ops besides the chosen one
    log_prob: RealTable  # [E][heads]
    entropy: RealTable  # [E][heads]
    value: RealRow
    outcome: Names
    reason: Names
    forced: Flags


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class AblationsMeasured(EpochEvent):
    """Accuracies with seeds switched off, and what follows from them."""

    acc_table: RealTable  # [E][2^N]
    exact: Flags
    host_acc: RealRow
    shapley: RealTable
    interaction_sum: RealTable
    boost_received: RealTable


@dataclass(frozen=True, slots=True)
class AttributionMissing(EpochEvent):
    """Reason why a seed has no fresh contribution: no_player, skipped, not_exact; None elsewhere."""

    reason: tuple[Choices, ...]


@dataclass(frozen=True, slots=True)
class RewardsPaid(EpochEvent):
    """Rewards of every env, by component."""

    names: Names
    components: RealTable  # [E][C]
    totals: RealTable  # [E][C], of the episode so far
