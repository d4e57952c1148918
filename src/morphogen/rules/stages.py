"""Stages of a slot: sets of stages as masks, ramps of alpha, moves from stage to stage and what changes on entry."""

import math

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.state.schema import SLOTS
from morphogen.state.tree_ops import choose, constant_table, masked_update
from morphogen.vocab import stage as stages
from morphogen.vocab.stage import DEFAULT_STEEPNESS, LEGAL_NEXT, AlphaMode, Curve, Stage

_EMPTY = {leaf.name: leaf.empty for leaf in SLOTS}
_NAMES = tuple(_EMPTY)
_REMOVED_LEAVES = {name: _EMPTY[name] for name in _NAMES[_NAMES.index("alpha") :]}  # emptied when a seed is removed


def clamp_stage(stage: Tensor) -> Tensor:
    """Replace codes outside the table by UNKNOWN, so that a table can be indexed."""
    return stage.masked_fill((stage < 0) | (stage >= len(Stage)), int(Stage.UNKNOWN))


def occupied(stage: Tensor) -> Tensor:
    """Mask of slots that hold a seed: GERMINATED .. FOSSILIZED.

    Shapes: stage int64 [...], a `Stage` -> bool [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> stage = torch.tensor([mg.Stage.DORMANT, mg.Stage.GERMINATED, mg.Stage.FOSSILIZED, mg.Stage.PRUNED])
        >>> mg.rules.occupied(stage).tolist()
        [False, True, True, False]
    """
    return _within(stage, stages.OCCUPIED)


def active(stage: Tensor) -> Tensor:
    """Mask of seeds that run in the forward pass: TRAINING .. FOSSILIZED.

    Shapes: stage int64 [...], a `Stage` -> bool [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rules.active(torch.tensor([mg.Stage.GERMINATED, mg.Stage.TRAINING, mg.Stage.PRUNED])).tolist()
        [False, True, False]
    """
    return _within(stage, stages.ACTIVE)


def blended(stage: Tensor) -> Tensor:
    """Mask of seeds that can change the output of the host: BLENDING .. FOSSILIZED.

    Shapes: stage int64 [...], a `Stage` -> bool [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rules.blended(torch.tensor([mg.Stage.TRAINING, mg.Stage.BLENDING, mg.Stage.HOLDING])).tolist()
        [False, True, True]
    """
    return _within(stage, stages.BLENDED)


def cooling(stage: Tensor) -> Tensor:
    """Mask of slots without a seed that are not free yet: PRUNED .. RESETTING.  stage int64 [...] -> bool [...]."""
    return _within(stage, stages.COOLING)


def _within(stage: Tensor, run: tuple[Stage, ...]) -> Tensor:
    """Mask of a set of stages; every set is a run of codes (`vocab.stage`), so two comparisons decide."""
    return (stage >= int(run[0])) & (stage <= int(run[-1]))


def curve(t: Tensor, shape: Tensor, steepness: Tensor) -> Tensor:
    """Progress along a ramp, monotone from c(0) = 0 over c(1/2) = 1/2 to c(1) = 1.

    Shapes: t in [0, 1], shape int64 (`Curve`), steepness >= 0.1, all equal -> as t.
    The sigmoid is the logistic function scaled to the unit square, as a tanh: no overflow for any steepness.
    """
    cosine = (1 - torch.cos(math.pi * t)) / 2
    quarter = steepness / 4
    sigmoid = 0.5 + torch.tanh(quarter * (2 * t - 1)) / (2 * torch.tanh(quarter))
    smooth = torch.where(shape == int(Curve.COSINE), cosine, sigmoid)
    return torch.where((shape == int(Curve.COSINE)) | (shape == int(Curve.SIGMOID)), smooth, t)


def retarget(
    slots: Slots, where: Tensor, target: Tensor | float, *, steps: Tensor, shape: Tensor, steepness: Tensor | float
) -> Slots:
    """Start a ramp from the present alpha; a slot whose alpha is moving keeps its ramp.

    Shapes: where bool [E, S]; target, steps (ticks), shape (`Curve`) and steepness broadcast against it.
    """
    start = slots.alpha
    target = torch.as_tensor(target, dtype=start.dtype, device=start.device).expand_as(start)
    ticks = choose(target == start, 0, steps)
    moving = choose(target > start, int(AlphaMode.UP), int(AlphaMode.DOWN))
    return masked_update(
        slots,
        where & (slots.alpha_mode == int(AlphaMode.HOLD)),
        alpha=torch.where(ticks == 0, target, start),
        alpha_start=start,
        alpha_target=target,
        alpha_mode=choose(ticks == 0, int(AlphaMode.HOLD), moving),
        alpha_curve=shape,
        alpha_steepness=steepness,
        alpha_steps=ticks,
        alpha_done=0,
    )


def advance_ramp(slots: Slots, where: Tensor) -> Slots:
    """Move alpha one tick along its ramp; the last tick lands on the target exactly.  where bool [E, S]."""
    start, target = slots.alpha_start, slots.alpha_target
    done = slots.alpha_done + 1
    last = done >= slots.alpha_steps
    progress = done.to(start.dtype) / slots.alpha_steps.clamp(min=1)
    along = start + (target - start) * curve(progress, slots.alpha_curve, slots.alpha_steepness)
    along = torch.minimum(torch.maximum(along, torch.minimum(start, target)), torch.maximum(start, target))
    return masked_update(
        slots,
        where & (slots.alpha_mode != int(AlphaMode.HOLD)),
        alpha=torch.where(last, target, along),
        alpha_mode=choose(last, int(AlphaMode.HOLD), slots.alpha_mode),
        alpha_done=done,
    )


def transition(slots: Slots, where: Tensor, to: Tensor, accuracy: Tensor) -> Slots:
    """Move slots to a stage unless that is illegal.  where bool, to int64 (`Stage`) [E, S]; accuracy [E], points."""
    legal = constant_table(LEGAL_NEXT, torch.bool, to.device)[clamp_stage(slots.stage), clamp_stage(to)]
    moved = masked_update(slots, where & legal, **_stage_entry(slots, to))
    return masked_update(moved, where & legal & occupied(to), accuracy_at_stage_start=accuracy[:, None])


def promote(slots: Slots, where: Tensor, to: Tensor, accuracy: Tensor) -> Slots:
    """Move slots up; start the first ramp on entering BLENDING, set alpha 1 on entering HOLDING.

    Shapes as in `transition`.  The caller has checked the gate.
    """
    blends = where & (slots.stage == int(Stage.TRAINING)) & (to == int(Stage.BLENDING))
    holds = where & (slots.stage == int(Stage.BLENDING)) & (to == int(Stage.HOLDING))
    slots = transition(slots, where, to, accuracy)
    slots = masked_update(slots, blends, accuracy_at_blending=accuracy[:, None], accuracy_at_blending_valid=True)
    target, steps, shape = slots.blend_target, slots.tempo, slots.blend_curve
    slots = retarget(slots, blends, target, steps=steps, shape=shape, steepness=DEFAULT_STEEPNESS)
    return masked_update(slots, holds, alpha=1.0, alpha_start=1.0, alpha_target=1.0, alpha_mode=int(AlphaMode.HOLD))


def remove(slots: Slots, where: Tensor) -> Slots:
    """Remove seeds: PRUNED, without alpha and measurements; blueprint, algorithm, tempo and age stay.

    Shapes: where bool [E, S].  Takes any stage: a rollback removes fossils too.
    """
    pruned = torch.full_like(slots.stage, int(Stage.PRUNED))
    return masked_update(slots, where, **_stage_entry(slots, pruned), **_REMOVED_LEAVES)


def clear(slots: Slots, where: Tensor) -> Slots:
    """Set every leaf of the slots to its empty value.  where bool [E, S]."""
    return masked_update(slots, where, **_EMPTY)


def _stage_entry(slots: Slots, to: Tensor) -> dict[str, Tensor | float]:
    left = {"previous_stage": slots.stage, "previous_epochs_in_stage": slots.epochs_in_stage}
    return {**left, "stage": to, "epochs_in_stage": 0}
