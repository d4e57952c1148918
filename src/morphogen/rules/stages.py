"""Stages of a slot: sets of stages as masks, ramps of alpha, moves from stage to stage, and
the leaves that an entry changes.
"""

import math

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.state.schema import SLOTS
from morphogen.state.tree_ops import choose, constant_table, masked_update
from morphogen.vocab import stage as stages
from morphogen.vocab.stage import DEFAULT_STEEPNESS, TRANSITIONS, AlphaMode, Curve, Stage

_EMPTY = [(leaf.name, leaf.empty) for leaf in SLOTS]
_ALPHA = [leaf.name for leaf in SLOTS].index("alpha")
_KEPT_LEAVES = dict(_EMPTY[:_ALPHA])
_REMOVED_LEAVES = dict(_EMPTY[_ALPHA:])  # emptied when a seed is removed
# rows of a table by stage: all codes, then the row of every invalid code
STAGE_ROWS = (*Stage, Stage.UNKNOWN)
_LEGAL_MOVES = tuple(tuple(to in TRANSITIONS[stage] for to in STAGE_ROWS) for stage in STAGE_ROWS)


def clamp_stage(stage: Tensor) -> Tensor:
    """Map codes to rows of a table over `STAGE_ROWS`; an invalid code has the row of UNKNOWN."""
    return stage.clamp(0, len(Stage))


def is_legal_move(stage: Tensor, to: Tensor) -> Tensor:
    """Mask of the moves in the transition table; staying is no move.  int64 [...], `Stage` codes ->
    bool [...].
    """
    return constant_table(_LEGAL_MOVES, torch.bool, to.device)[clamp_stage(stage), clamp_stage(to)]


def occupied(stage: Tensor) -> Tensor:
    """Mask of slots that hold a seed: GERMINATED .. FOSSILIZED.

    Shapes: stage int64 [...], a `Stage` -> bool [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> stage = torch.tensor(
        ...     [mg.Stage.DORMANT, mg.Stage.GERMINATED, mg.Stage.FOSSILIZED, mg.Stage.PRUNED]
        ... )
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
        >>> mg.rules.active(
        ...     torch.tensor([mg.Stage.GERMINATED, mg.Stage.TRAINING, mg.Stage.PRUNED])
        ... ).tolist()
        [False, True, False]
    """
    return _within(stage, stages.ACTIVE)


def blended(stage: Tensor) -> Tensor:
    """Mask of seeds that can change the output of the host: BLENDING .. FOSSILIZED.

    Shapes: stage int64 [...], a `Stage` -> bool [...].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rules.blended(
        ...     torch.tensor([mg.Stage.TRAINING, mg.Stage.BLENDING, mg.Stage.HOLDING])
        ... ).tolist()
        [False, True, True]
    """
    return _within(stage, stages.BLENDED)


def cooling(stage: Tensor) -> Tensor:
    """Mask of slots without a seed that are not free yet: PRUNED .. RESETTING.  stage int64 [...]
    -> bool [...].
    """
    return _within(stage, stages.COOLING)


def _within(stage: Tensor, run: tuple[Stage, ...]) -> Tensor:
    """Mask of a set of stages; every set is a run of codes (`vocab.stage`), which a clamp leaves as
    they are.
    """
    return stage.clamp(int(run[0]), int(run[-1])) == stage


def curve(t: Tensor, shape: Tensor, steepness: Tensor) -> Tensor:
    """Progress along a ramp, monotone from c(0) = 0 over c(1/2) = 1/2 to c(1) = 1.

    Shapes: t in [0, 1], shape int64 (`Curve`), steepness >= 0.1, all equal -> as t. The sigmoid is
    the logistic function scaled to the unit square, as a tanh: no overflow for any steepness.
    """
    cosine = (1 - torch.cos(math.pi * t)) / 2
    quarter = steepness / 4
    sigmoid = 0.5 + torch.tanh(quarter * (2 * t - 1)) / (2 * torch.tanh(quarter))
    smooth = torch.where(shape == int(Curve.COSINE), cosine, sigmoid)
    return torch.where((shape == int(Curve.COSINE)) | (shape == int(Curve.SIGMOID)), smooth, t)


def retarget(
    slots: Slots,
    where: Tensor,
    target: Tensor | float,
    *,
    steps: Tensor,
    shape: Tensor,
    steepness: Tensor | float,
) -> Slots:
    """Start a ramp from the present alpha; a slot whose alpha is moving keeps its ramp.

    Shapes: where bool [E, S]; target, steps (ticks), shape (`Curve`) and steepness broadcast
    against it.
    """
    start = slots.alpha
    target = torch.as_tensor(target, dtype=start.dtype, device=start.device).expand_as(start)
    ticks = choose(target == start, 0, steps)
    moving = choose(target > start, int(AlphaMode.UP), int(AlphaMode.DOWN))
    at_once = ticks == 0
    leaves = {
        "alpha": torch.where(at_once, target, start),
        "alpha_start": start,
        "alpha_target": target,
        "alpha_mode": choose(at_once, int(AlphaMode.HOLD), moving),
        "alpha_curve": shape,
        "alpha_steepness": steepness,
        "alpha_steps": ticks,
        "alpha_done": 0,
    }
    return masked_update(slots, (where & (slots.alpha_mode == int(AlphaMode.HOLD)), leaves))


def advance_ramp(slots: Slots, where: Tensor) -> Slots:
    """Move alpha one tick along its ramp; the last tick lands on the target exactly.  where bool
    [E, S].
    """
    start = slots.alpha_start
    target = slots.alpha_target
    done = slots.alpha_done + 1
    last = done >= slots.alpha_steps
    progress = done.to(start.dtype) / slots.alpha_steps.clamp(min=1)
    along = start + (target - start) * curve(progress, slots.alpha_curve, slots.alpha_steepness)
    along = torch.minimum(
        torch.maximum(along, torch.minimum(start, target)), torch.maximum(start, target)
    )
    leaves = {
        "alpha": torch.where(last, target, along),
        "alpha_mode": choose(last, int(AlphaMode.HOLD), slots.alpha_mode),
        "alpha_done": done,
    }
    return masked_update(slots, (where & (slots.alpha_mode != int(AlphaMode.HOLD)), leaves))


def transition(slots: Slots, where: Tensor, to: Tensor, accuracy: Tensor) -> Slots:
    """Move slots to a stage unless that is illegal.  where bool, to int64 (`Stage`) [E, S];
    accuracy [E], points.
    """
    moved = where & is_legal_move(slots.stage, to)
    start = {"accuracy_at_stage_start": accuracy[:, None]}
    return masked_update(slots, (moved, _stage_entry(slots, to)), (moved & occupied(to), start))


def promote(slots: Slots, where: Tensor, to: Tensor, accuracy: Tensor) -> Slots:
    """Move slots up; start the first ramp on entering BLENDING, set alpha 1 on entering HOLDING.

    Shapes as in `transition`.  The caller has checked the gate.
    """
    moved = transition(slots, where, to, accuracy)
    blends = where & (slots.stage == int(Stage.TRAINING)) & (to == int(Stage.BLENDING))
    mark = {"accuracy_at_blending": accuracy[:, None], "accuracy_at_blending_valid": True}
    moved = retarget(
        masked_update(moved, (blends, mark)),
        blends,
        slots.blend_target,
        steps=slots.tempo,
        shape=slots.blend_curve,
        steepness=DEFAULT_STEEPNESS,
    )
    holds = where & (slots.stage == int(Stage.BLENDING)) & (to == int(Stage.HOLDING))
    full = dict.fromkeys(("alpha", "alpha_start", "alpha_target"), 1.0)
    return masked_update(moved, (holds, {**full, "alpha_mode": int(AlphaMode.HOLD)}))


def remove(slots: Slots, where: Tensor) -> Slots:
    """Remove seeds: PRUNED, without alpha and measurements; blueprint, algorithm, tempo and age
    stay.

    Shapes: where bool [E, S].  Takes any stage: a rollback removes fossils too.
    """
    return masked_update(slots, (where, _stage_entry(slots, int(Stage.PRUNED)) | _REMOVED_LEAVES))


def vacate(slots: Slots, *, removed: Tensor, cleared: Tensor) -> Slots:
    """Remove seeds as `remove`, and set every leaf of other slots to its empty value.  Masks bool
    [E, S].
    """
    entry = _stage_entry(slots, int(Stage.PRUNED))
    return masked_update(
        slots, (removed, entry), (cleared, _KEPT_LEAVES), (removed | cleared, _REMOVED_LEAVES)
    )


def _stage_entry(slots: Slots, to: Tensor | int) -> dict[str, Tensor | float]:
    left = {"previous_stage": slots.stage, "previous_epochs_in_stage": slots.epochs_in_stage}
    return {**left, "stage": to, "epochs_in_stage": 0}
