"""Moves of a slot from stage to stage, and the leaves that change on entry."""

import torch
from torch import Tensor

from morphogen.rules.alpha import retarget
from morphogen.rules.stages import clamp_stage, occupied
from morphogen.state.env import Slots
from morphogen.state.schema import SLOTS
from morphogen.state.tree_ops import constant_table, masked_update
from morphogen.vocab.stage import DEFAULT_STEEPNESS, LEGAL_NEXT, AlphaMode, Stage

_EMPTY = {leaf.name: leaf.empty for leaf in SLOTS}
_NAMES = tuple(_EMPTY)
_REMOVED_LEAVES = {name: _EMPTY[name] for name in _NAMES[_NAMES.index("alpha") :]}  # emptied when a seed is removed


def transition(slots: Slots, where: Tensor, to: Tensor, accuracy: Tensor) -> Slots:
    """Move slots to a stage; an illegal move changes nothing.

    Shapes: where bool [E, S], to int64 [E, S] (`Stage`), accuracy float32 [E] (measured, points).
    """
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
    slots = retarget(
        slots,
        blends,
        slots.blend_target,
        steps=slots.tempo,
        shape=slots.blend_curve,
        steepness=DEFAULT_STEEPNESS,
    )
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
    return {
        "previous_stage": slots.stage,
        "previous_epochs_in_stage": slots.epochs_in_stage,
        "stage": to,
        "epochs_in_stage": 0,
    }
