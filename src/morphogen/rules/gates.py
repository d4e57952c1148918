"""Gates: the checks before a slot moves to its next stage."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from morphogen.config.groups import LifecycleSpec
from morphogen.rules.stages import STAGE_ROWS, clamp_stage, is_legal_move
from morphogen.state.env import Slots
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.stage import GATE_TARGET, AlphaMode, Check, Gate, Stage

ALPHA_TOLERANCE = 1e-6  # of an alpha that counts as full, or as at its target
_GATE_BEFORE = tuple(
    next((int(gate) for gate, to in GATE_TARGET.items() if to is stage), 0) for stage in STAGE_ROWS
)
FailedChecks = tuple[tuple[Check, Tensor], ...]  # True where the check failed


def gate_before(target: Tensor) -> Tensor:
    """Code of the gate in front of a stage; 0 for a stage without a gate.  target int64 [...] ->
    int64 [...].
    """
    return constant_table(_GATE_BEFORE, torch.int64, target.device)[clamp_stage(target)]


def check_gate(
    slots: Slots,
    accuracy: Tensor,
    target: Tensor,
    *,
    spec: LifecycleSpec,
    gates: Collection[Gate] = tuple(GATE_TARGET),
) -> tuple[Tensor, Tensor]:
    """Check the gates of slots that are to advance to a stage.

    Shapes: slots [E]; accuracy float32 [E] (measured, points); target int64 [E, S], a `Stage` ->
    passed bool, failed int64 [E, S], bit n = `vocab.stage.Check` n failed.  gates: those in front
    of the targets.
    Promise: slots are independent; an unmeasured value never passes a check.  A target without a
    gate fails like an illegal one.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> state, _ = env.reset()
        >>> slots = state.slots.replace(stage=torch.full((1, 2), int(mg.Stage.GERMINATED)))
        >>> target = torch.tensor([[mg.Stage.TRAINING, mg.Stage.HOLDING]])
        >>> passed, failed = mg.rules.check_gate(
        ...     slots, state.signals.val_acc, target, spec=env.spec.lifecycle
        ... )
        >>> passed.tolist(), bool(failed[0, 1] >> mg.vocab.stage.Check.ILLEGAL_TRANSITION & 1)
        ([[True, False]], True)
    """
    kind = gate_before(target)
    checks = [
        check for gate in gates for check in _CHECKS[gate](slots, kind == int(gate), accuracy, spec)
    ]
    checks.append(
        (Check.ILLEGAL_TRANSITION, ~is_legal_move(slots.stage, target) | (kind == int(Gate.NONE)))
    )
    hits = torch.stack([hit for _, hit in checks], dim=-1)
    # Only one gate applies to a slot, so bits of two gates never add up.
    bits = constant_table(tuple(1 << int(check) for check, _ in checks), torch.int64, hits.device)
    failed = (hits * bits).sum(-1)
    return failed == 0, failed


def _train_checks(
    slots: Slots, train: Tensor, accuracy: Tensor, spec: LifecycleSpec
) -> FailedChecks:
    """Check of TRAIN."""
    del accuracy, spec
    return ((Check.NOT_GERMINATED, train & (slots.stage != int(Stage.GERMINATED))),)


def _blend_checks(
    slots: Slots, blend: Tensor, accuracy: Tensor, spec: LifecycleSpec
) -> FailedChecks:
    """Checks of BLEND: a healthy gradient; strict: accuracy improved, the gradient is a fair share
    of the host's.
    """
    early = (Check.TOO_EARLY, blend & (slots.epochs_in_stage < spec.min_training_epochs))
    if spec.permissive_gates:
        judged = blend & slots.gradient_valid
        unhealthy = ~slots.exploding & ~(slots.gradient_health >= spec.min_gradient_health)
        return (
            early,
            (Check.GRADIENT_UNMEASURED, blend & ~slots.gradient_valid),
            (Check.EXPLODING, judged & slots.exploding),
            (Check.UNHEALTHY_GRADIENT, judged & unhealthy),
        )
    improvement = accuracy[:, None] - slots.accuracy_at_stage_start
    measured = slots.gradient_ratio_valid
    return (
        early,
        (Check.TOO_LITTLE_IMPROVEMENT, blend & ~(improvement >= spec.min_improvement)),
        (Check.RATIO_UNMEASURED, blend & ~measured),
        (Check.RATIO_LOW, blend & measured & ~(slots.gradient_ratio >= spec.min_gradient_ratio)),
    )


def _hold_checks(slots: Slots, hold: Tensor, accuracy: Tensor, spec: LifecycleSpec) -> FailedChecks:
    """Checks of HOLD: long enough at full alpha."""
    del accuracy
    least_blending = 0 if spec.permissive_gates else spec.min_blending_epochs
    resting = (slots.alpha_mode == int(AlphaMode.HOLD)) & (
        (slots.alpha - slots.alpha_target).abs() <= ALPHA_TOLERANCE
    )
    return (
        (Check.TOO_EARLY, hold & (slots.epochs_in_stage < least_blending)),
        (Check.TARGET_NOT_FULL, hold & ~(slots.alpha_target >= 1 - ALPHA_TOLERANCE)),
        (Check.NOT_AT_TARGET, hold & ~resting),
    )


def _fossilize_checks(
    slots: Slots, fossilize: Tensor, accuracy: Tensor, spec: LifecycleSpec
) -> FailedChecks:
    """Checks of FOSSILIZE: a measured contribution; strict: a large enough one."""
    del accuracy
    least_contribution = float("-inf") if spec.permissive_gates else spec.min_contribution
    judged = fossilize & slots.contribution_valid
    return (
        (Check.CONTRIBUTION_UNMEASURED, fossilize & ~slots.contribution_valid),
        (Check.EXPLODING, judged & slots.gradient_valid & slots.exploding),
        (Check.CONTRIBUTION_LOW, judged & ~(slots.contribution >= least_contribution)),
    )


_CHECKS: dict[Gate, Callable[[Slots, Tensor, Tensor, LifecycleSpec], FailedChecks]] = {
    Gate.TRAIN: _train_checks,
    Gate.BLEND: _blend_checks,
    Gate.HOLD: _hold_checks,
    Gate.FOSSILIZE: _fossilize_checks,
}
