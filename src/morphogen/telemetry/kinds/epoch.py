"""Events about one epoch of all envs: tuples over envs, [E], and over envs and slots, [E][S]; None = not measured."""

from dataclasses import dataclass
from typing import ClassVar

from morphogen.storage.type_check import Count, Row, Table
from morphogen.telemetry.events import EpochEvent

Counts = tuple[Count, ...]
Flags = tuple[bool, ...]
Names = tuple[str, ...]
Choices = tuple[str | None, ...]  # None where the op does not use the head


@dataclass(frozen=True, slots=True)
class EpochCompleted(EpochEvent):
    """How every env stands after an epoch."""

    LEVEL: ClassVar[str] = "normal"

    train_loss: Row
    train_acc: Row
    val_loss: Row
    val_acc: Row
    committed_acc: Row
    reward: Row
    host_gradient_norm: Row
    params_ratio: Row  # of the network as delivered, over the host's
    skipped: Counts  # minibatches
    forwards: Counts  # passes over the validation split
    op_effective: Names
    success: Flags  # the action was executed
    stage: tuple[Names, ...]
    alpha: Table
    contribution: Table


@dataclass(frozen=True, slots=True)
class ActionsTaken(EpochEvent):
    """What was chosen for every env, from what, and what became of it."""

    op: Choices
    slot: Choices
    blueprint: Choices
    style: Choices
    tempo: Choices
    alpha_target: Choices
    alpha_speed: Choices
    alpha_curve: Choices
    op_prob: Table  # [E][OPS]
    op_legal: tuple[Flags, ...]  # [E][OPS]
    others: tuple[Names, ...]  # the at most two most likely legal ops besides the chosen one
    log_prob: Table  # [E][heads]
    entropy: Table  # [E][heads]
    value: Row
    outcome: Names
    reason: Names
    forced: Flags


@dataclass(frozen=True, slots=True)
class SlotsMeasured(EpochEvent):
    """Gradients and progress of every seed."""

    gradient_norm: Table
    gradient_health: Table
    gradient_ratio: Table
    vanishing: tuple[tuple[bool | None, ...], ...]
    exploding: tuple[tuple[bool | None, ...], ...]
    velocity: Table  # of the contribution, points per epoch
    interaction: Table  # points, summed over the partners
    age: tuple[Counts, ...]
    epochs_in_stage: tuple[Counts, ...]


@dataclass(frozen=True, slots=True)
class AblationsMeasured(EpochEvent):
    """Accuracies with seeds switched off, and what follows from them."""

    acc_table: Table  # [E][2^N]
    exact: Flags
    host_acc: Row
    shapley: Table
    interaction_sum: Table
    boost_received: Table


@dataclass(frozen=True, slots=True)
class AttributionMissing(EpochEvent):
    """Where a seed has no fresh contribution, and why: no_player, skipped, not_exact; None elsewhere."""

    reason: tuple[Choices, ...]


@dataclass(frozen=True, slots=True)
class RewardsPaid(EpochEvent):
    """What every env was paid, by component."""

    names: Names
    components: Table  # [E][C]
    totals: Table  # [E][C], of the episode so far
