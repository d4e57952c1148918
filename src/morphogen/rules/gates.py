"""Gates: the checks before a slot moves to its next stage."""

import torch
from torch import Tensor

from morphogen.config.spec import LifecycleSpec
from morphogen.rules.stages import clamp_stage
from morphogen.state.env import Slots
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.stage import GATE_TARGET, LEGAL_NEXT, AlphaMode, Check, Gate, Stage

ALPHA_TOLERANCE = 1e-6  # of an alpha that counts as full, or as at its target
_GATE_BEFORE = tuple(next((int(gate) for gate, to in GATE_TARGET.items() if to is stage), 0) for stage in Stage)
FailedChecks = dict[Check, Tensor]  # True where the check failed


def gate_before(target: Tensor) -> Tensor:
    """Code of the gate in front of a stage; 0 for a stage without a gate.  target int64 [...] -> int64 [...]."""
    return constant_table(_GATE_BEFORE, torch.int64, target.device)[clamp_stage(target)]


def check_gate(slots: Slots, accuracy: Tensor, target: Tensor, *, spec: LifecycleSpec) -> tuple[Tensor, Tensor]:
    """Return whether slots may advance, and the failed bits of `Check`.

    Shapes: accuracy float32 [E] (measured, points), target int64 [E, S] (stage) -> passed bool, failed int64 [E, S].
    Promise: slots are independent; an unmeasured value never passes a check.  A target without a gate fails like an
    illegal one.
    """
    kind = gate_before(target)
    g1, g2, g3, g5 = (kind == int(which) for which in (Gate.TRAIN, Gate.BLEND, Gate.HOLD, Gate.FOSSILIZE))
    legal = constant_table(LEGAL_NEXT, torch.bool, target.device)[clamp_stage(slots.stage), clamp_stage(target)]
    train = {Check.NOT_GERMINATED: g1 & (slots.stage != int(Stage.GERMINATED))}
    blend = (
        _permissive_blend_checks(slots, g2, spec)
        if spec.permissive_gates
        else _strict_blend_checks(slots, g2, accuracy, spec)
    )
    hold = _hold_checks(slots, g3, spec)
    fossilize = _fossilize_checks(slots, g5, spec)
    no_way_up = {Check.ILLEGAL_TRANSITION: ~legal | (kind == int(Gate.NONE))}
    failed = _failed_bits(train, blend, hold, fossilize, no_way_up)
    return failed == 0, failed


def _failed_bits(*groups: FailedChecks) -> Tensor:
    """Failed checks as one number.  Only one gate applies to a slot, so bits of two gates never add up."""
    checks = [(1 << int(check), hit) for group in groups for check, hit in group.items()]
    hits = torch.stack([hit for _, hit in checks], dim=-1)
    return (hits * constant_table(tuple(bit for bit, _ in checks), torch.int64, hits.device)).sum(-1)


def _permissive_blend_checks(slots: Slots, applies: Tensor, spec: LifecycleSpec) -> FailedChecks:
    """BLEND: trained long enough; the gradient was measured, does not explode and is healthy."""
    judged = applies & slots.gradient_valid
    healthy = slots.gradient_health >= spec.min_gradient_health
    return {
        Check.TOO_EARLY: applies & (slots.epochs_in_stage < spec.min_training_epochs),
        Check.GRADIENT_UNMEASURED: applies & ~slots.gradient_valid,
        Check.EXPLODING: judged & slots.exploding,
        Check.UNHEALTHY_GRADIENT: judged & ~slots.exploding & ~healthy,
    }


def _strict_blend_checks(slots: Slots, applies: Tensor, accuracy: Tensor, spec: LifecycleSpec) -> FailedChecks:
    """BLEND: trained long enough; accuracy improved meanwhile; the gradient is a fair share of the host's."""
    improvement = accuracy[:, None] - slots.accuracy_at_stage_start
    measured = slots.gradient_ratio_valid
    return {
        Check.TOO_EARLY: applies & (slots.epochs_in_stage < spec.min_training_epochs),
        Check.TOO_LITTLE_IMPROVEMENT: applies & ~(improvement >= spec.min_improvement),
        Check.RATIO_UNMEASURED: applies & ~measured,
        Check.RATIO_LOW: applies & measured & ~(slots.gradient_ratio >= spec.min_gradient_ratio),
    }


def _hold_checks(slots: Slots, applies: Tensor, spec: LifecycleSpec) -> FailedChecks:
    """HOLD: alpha rests at a full target; strict: and blended long enough."""
    rests = slots.alpha_mode == int(AlphaMode.HOLD)
    near = (slots.alpha - slots.alpha_target).abs() <= ALPHA_TOLERANCE
    least = 0 if spec.permissive_gates else spec.min_blending_epochs
    return {
        Check.TOO_EARLY: applies & (slots.epochs_in_stage < least),
        Check.TARGET_NOT_FULL: applies & ~(slots.alpha_target >= 1 - ALPHA_TOLERANCE),
        Check.NOT_AT_TARGET: applies & ~(rests & near),
    }


def _fossilize_checks(slots: Slots, applies: Tensor, spec: LifecycleSpec) -> FailedChecks:
    """FOSSILIZE: the contribution was measured (strict: and is large enough), and no gradient explodes."""
    judged = applies & slots.contribution_valid
    low = ~(slots.contribution >= (float("-inf") if spec.permissive_gates else spec.min_contribution))
    return {
        Check.CONTRIBUTION_UNMEASURED: applies & ~slots.contribution_valid,
        Check.EXPLODING: judged & slots.gradient_valid & slots.exploding,
        Check.CONTRIBUTION_LOW: judged & low,
    }
