"""Legality of actions, written once, and the masks that follow from it."""

import math

import torch
from torch import Tensor

from morphogen.rules.stages import STAGE_ROWS, clamp_stage, cooling, occupied
from morphogen.state.decision import ActionMasks
from morphogen.state.env import Slots
from morphogen.state.tree_ops import (
    Table,
    choose,
    computed_table,
    constant_table,
    positions,
    replace,
    select,
    unsafe_new,
)
from morphogen.vocab.action import RELEVANT, SIZES, Head, Op, Reason
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import GATE_SOURCE, AlphaMode, Gate, Stage

# Stages of a slot that an op may address.
ALLOWED_STAGES: dict[Op, tuple[Stage, ...]] = {
    Op.WAIT: tuple(Stage),
    Op.GERMINATE: (Stage.DORMANT,),
    Op.SET_ALPHA_TARGET: (Stage.BLENDING, Stage.HOLDING),
    Op.PRUNE: (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING),
    Op.FOSSILIZE: (Stage.HOLDING,),
    Op.ADVANCE: (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING),
}
_ALLOWED_TABLE = tuple(tuple(stage in ALLOWED_STAGES[op] for stage in STAGE_ROWS) for op in Op)
# Ops that each hindrance of a slot or an env forbids.
_HINDERED: dict[Reason, tuple[Op, ...]] = {
    Reason.SLOT_DISABLED: tuple(Op),
    Reason.BUSY: (Op.GERMINATE,),
    Reason.SEED_LIMIT: (Op.GERMINATE,),
    Reason.TOO_YOUNG: (Op.PRUNE,),
    Reason.ALPHA_MOVING: (Op.PRUNE, Op.SET_ALPHA_TARGET),
}
# [5, 1, 6, 1]
_HINDERED_TABLE = tuple((tuple((op in ops,) for op in Op),) for ops in _HINDERED.values())
# Reasons of the conditions, in the order in which they are stacked.
CONDITIONS: tuple[Reason, ...] = (Reason.OP_DISABLED, Reason.WRONG_STAGE, *_HINDERED)


def conditions(slots: Slots, limits: Limits) -> Tensor:
    """Each condition of legality, True = met, in the order of `rules.legality.CONDITIONS`.

    Shapes: slots [E] -> bool [7, E, 6, S], per condition, env, op and slot.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> met = mg.rules.conditions(env.reset()[0].slots, env.limits)
        >>> prune = zip(mg.rules.legality.CONDITIONS, met[:, 0, mg.Op.PRUNE, 0])
        >>> [reason.name for reason, ok in prune if not ok]
        ['WRONG_STAGE', 'TOO_YOUNG']
    """
    stage = clamp_stage(slots.stage)
    device = slots.stage.device
    enabled = constant_table(limits.enabled, torch.bool, device).expand_as(stage)
    limited = (limits.disabled_ops, limits.auto_forward)
    free = computed_table(_free_rows, *limited, dtype=torch.bool, device=device)[:, stage]
    allowed = constant_table(_ALLOWED_TABLE, torch.bool, device)[:, stage]
    developing = (stage == int(Stage.GERMINATED)) | (stage == int(Stage.TRAINING))
    working = developing | cooling(stage)
    busy = (enabled & working).any(-1, keepdim=True)
    full = occupied(stage).sum(-1, keepdim=True) >= (limits.max_seeds or math.inf)
    young = slots.age < limits.min_prune_age
    moving = slots.alpha_mode != int(AlphaMode.HOLD)
    # in the order of `_HINDERED`
    hindrances = (~enabled, busy.expand_as(enabled), full.expand_as(enabled), young, moving)
    hindered = torch.stack(hindrances).unsqueeze(2) & constant_table(
        _HINDERED_TABLE, torch.bool, device
    )
    return torch.cat((torch.stack((free, allowed)).transpose(1, 2), ~hindered))


def _free_rows(disabled_ops: tuple[str, ...], auto_forward: tuple[str, ...]) -> Table:
    """Ops that the limits leave in each stage."""
    # stages that `tick` advances by itself
    auto = [GATE_SOURCE[Gate[name]] for name in auto_forward]
    return tuple(
        tuple(
            op.name not in disabled_ops and not (op is Op.ADVANCE and stage in auto)
            for stage in STAGE_ROWS
        )
        for op in Op
    )


def legal(slots: Slots, limits: Limits) -> Tensor:
    """Legal slots of each op: the one definition of legality.  Reads stage, age and alpha mode
    only.

    Shapes: slots [E] -> bool [E, 6, S], rows in the order of `Op`.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> allowed = mg.rules.legal(env.reset()[0].slots, env.limits)
        >>> [op.name for op in mg.Op if allowed[0, op].any()]
        ['WAIT', 'GERMINATE']
    """
    return conditions(slots, limits).all(0)


def relevant_heads(op: Tensor) -> Tensor:
    """Return the heads that ops use.  int64 [...] -> bool [..., 8]."""
    return constant_table(RELEVANT, torch.bool, op.device)[op]


def action_masks(
    slots: Slots, limits: Limits, *, conditions_met: Tensor | None = None
) -> ActionMasks:
    """Masks of legal choices, True = allowed; value heads other than the blueprint are free.

    Shapes: slots [E] -> ActionMasks [E].  conditions_met: bool [7, E, 6, S] from `conditions`, if
    known.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> masks = mg.rules.action_masks(env.reset()[0].slots, env.limits)
        >>> masks.op[0].tolist()
        [True, True, False, False, False, False]
        >>> [mg.Blueprint(code).label for code in masks.blueprint[0].nonzero().flatten().tolist()]
        ['conv_light', 'bottleneck', 'conv_heavy']
    """
    allowed = legal(slots, limits) if conditions_met is None else conditions_met.all(0)
    device = slots.stage.device
    envs = slots.stage.shape[0]
    possible = limits.allowed_blueprints
    blueprints = tuple(code in possible for code in Blueprint)
    return unsafe_new(
        ActionMasks,
        slots,
        op=allowed.any(-1),
        slot=allowed,
        blueprint=constant_table(blueprints, torch.bool, device).repeat(envs, 1),
        **{
            head.label: torch.ones(envs, SIZES[head], dtype=torch.bool, device=device)
            for head in Head
            if head > Head.BLUEPRINT
        },
    )


def action_count(masks: ActionMasks) -> Tensor:
    """Number of distinct complete actions; heads that an op does not use do not count.

    Shapes: masks [E] -> int64 [E].

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> masks = mg.rules.action_masks(env.reset()[0].slots, env.limits)
        >>> mg.rules.action_count(
        ...     masks
        ... ).tolist()  # WAIT, or GERMINATE: slot, blueprint, style, tempo, alpha target
        [217]
        >>> 1 + 2 * 3 * 4 * 3 * 3
        217
    """
    relevant = constant_table(RELEVANT, torch.bool, masks.op.device)
    values = torch.stack(
        [getattr(masks, head.label).sum(-1) for head in Head if head > Head.SLOT], -1
    )
    combinations = choose(relevant[:, Head.BLUEPRINT :], values[:, None], 1).prod(-1)
    slots = choose(relevant[:, Head.SLOT], masks.slot.sum(-1), 1)
    return (masks.op * slots * combinations).sum(-1)


def restrict_masks(
    masks: ActionMasks, entry: Tensor, present: Tensor
) -> tuple[ActionMasks, Tensor]:
    """Narrow masks to a declared action; to WAIT without a declared action, or where it is not
    allowed.

    Shapes: masks [E]; entry int64 [E, 8] or [1, 8] (`Head` order); present bool [E] or [1] ->
    (masks [E], missed bool [E], True where an action was declared and is not allowed).
    Promise: no False becomes True; every env for which WAIT is allowed keeps exactly one action.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> masks = mg.rules.action_masks(env.reset()[0].slots, env.limits)
        >>> entry = torch.tensor(
        ...     [[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT] + 5 * [0], [mg.Op.PRUNE] + 7 * [0]]
        ... )
        >>> masks, missed = mg.rules.restrict_masks(masks, entry, torch.tensor([True, True]))
        >>> [mg.Op(op).name for op in masks.op.int().argmax(-1).tolist()], missed.tolist()
        (['GERMINATE', 'WAIT'], [False, True])
    """
    envs = masks.op.shape[0]
    declared = _keep_action(masks, entry.expand(envs, -1))
    wait = narrow_masks(masks, torch.zeros_like(masks.slot))
    obeyed = present & (action_count(declared) == 1)
    return select(obeyed, declared, wait), present & ~obeyed


def narrow_masks(masks: ActionMasks, allowed: Tensor) -> ActionMasks:
    """Narrow masks to the slots that another mask allows for each op; an env that it leaves nothing
    keeps WAIT.

    Shapes: masks [E]; allowed bool [E, 6, S] -> masks [E].
    Promise: no False becomes True; every env for which WAIT is allowed keeps a choice.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> masks = mg.rules.action_masks(env.reset()[0].slots, env.limits)
        >>> allowed = torch.ones(2, 6, 2, dtype=torch.bool)
        >>> allowed[0, mg.Op.WAIT], allowed[1] = (
        ...     False,
        ...     False,
        ... )  # env 0 has to act, env 1 may do nothing at all
        >>> [
        ...     [op.name for op in mg.Op if row[op]]
        ...     for row in mg.rules.narrow_masks(masks, allowed).op
        ... ]
        [['GERMINATE'], ['WAIT']]
    """
    left = masks.slot & allowed
    wait = constant_table(tuple(op is Op.WAIT for op in Op), torch.bool, left.device)
    idle = wait & ~left.flatten(1).any(-1, keepdim=True)
    slot = left | (masks.slot & idle.unsqueeze(-1))
    return replace(masks, op=slot.any(-1), slot=slot)


def _keep_action(masks: ActionMasks, action: Tensor) -> ActionMasks:
    """The masks without every other action; nothing is left where this one is not allowed.  action
    int64 [E, 8].
    """
    relevant = relevant_heads(action[:, Head.OP].clamp(0, len(Op) - 1))
    sizes = SIZES | {Head.SLOT: masks.slot.shape[-1]}
    named = {
        head: (action[:, head, None] == positions(size, action.device)) | ~relevant[:, head, None]
        for head, size in sizes.items()
    }
    left = {
        head.label: getattr(masks, head.label) & named[head]
        for head in Head
        if head is not Head.SLOT
    }
    slot = masks.slot & left[Head.OP.label].unsqueeze(-1) & named[Head.SLOT].unsqueeze(1)
    return replace(masks, **left, slot=slot)
