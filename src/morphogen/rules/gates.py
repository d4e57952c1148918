"""Gates: the checks before a slot moves to its next stage."""

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
) -> tuple[Tensor, Tensor]:
    """Check the gates of slots that are to advance to a stage.

    Shapes: slots [E]; accuracy float32 [E] (measured, points); target int64 [E, S], a `Stage` ->
    passed bool, failed int64 [E, S], bit n = `vocab.stage.Check` n failed.
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
    train, blend, hold, fossilize = (kind == int(gate) for gate in GATE_TARGET)
    least_blending = 0 if spec.permissive_gates else spec.min_blending_epochs
    early = blend & (slots.epochs_in_stage < spec.min_training_epochs)
    resting = (slots.alpha_mode == int(AlphaMode.HOLD)) & (
        (slots.alpha - slots.alpha_target).abs() <= ALPHA_TOLERANCE
    )
    credited = fossilize & slots.contribution_valid
    least_contribution = float("-inf") if spec.permissive_gates else spec.min_contribution
    steady = credited  # slots in which a gradient must not explode
    if spec.permissive_gates:
        steady = credited | blend
        unhealthy = ~slots.exploding & ~(slots.gradient_health >= spec.min_gradient_health)
        blend_checks = {
            Check.GRADIENT_UNMEASURED: blend & ~slots.gradient_valid,
            Check.UNHEALTHY_GRADIENT: blend & slots.gradient_valid & unhealthy,
        }
    else:  # accuracy improved, and the gradient is a fair share of the host's
        improvement = accuracy[:, None] - slots.accuracy_at_stage_start
        measured = slots.gradient_ratio_valid
        small = ~(slots.gradient_ratio >= spec.min_gradient_ratio)
        blend_checks = {
            Check.TOO_LITTLE_IMPROVEMENT: blend & ~(improvement >= spec.min_improvement),
            Check.RATIO_UNMEASURED: blend & ~measured,
            Check.RATIO_LOW: blend & measured & small,
        }
    checks = {
        Check.ILLEGAL_TRANSITION: ~is_legal_move(slots.stage, target) | (kind == int(Gate.NONE)),
        Check.NOT_GERMINATED: train & (slots.stage != int(Stage.GERMINATED)),
        Check.TOO_EARLY: early | (hold & (slots.epochs_in_stage < least_blending)),
        Check.EXPLODING: steady & slots.gradient_valid & slots.exploding,
        **blend_checks,
        Check.TARGET_NOT_FULL: hold & ~(slots.alpha_target >= 1 - ALPHA_TOLERANCE),
        Check.NOT_AT_TARGET: hold & ~resting,
        Check.CONTRIBUTION_UNMEASURED: fossilize & ~slots.contribution_valid,
        Check.CONTRIBUTION_LOW: credited & ~(slots.contribution >= least_contribution),
    }
    hits = torch.stack([*checks.values()], dim=-1)
    bits = constant_table(tuple(1 << int(check) for check in checks), torch.int64, hits.device)
    failed = (hits * bits).sum(-1)
    return failed == 0, failed
