"""Kinds of events that describe an epoch in detail; None = not measured."""

from morphogen.log.events import (
    Count,
    EnvEvent,
    EpochEvent,
    Json,
    Real,
    RealRow,
    RealTable,
    SlotEvent,
)
from morphogen.log.kinds.epoch import Counts, Flags, Names

Choices = tuple[str | None, ...]  # None where the op does not use the head


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


class GateEvaluated(SlotEvent):
    """A gate was asked."""

    gate: str
    passed: bool
    failed: tuple[str, ...]  # names of the checks


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


class TopologyRecorded(EnvEvent):
    """Fossils of an env at the end of its episode."""

    sha256: str  # of the manifest as canonical JSON
    manifest: Json
