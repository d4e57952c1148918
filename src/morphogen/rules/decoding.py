"""Decoding of head indices into an executable action."""

import torch
from torch import Tensor

from morphogen.rules.legality import CONDITIONS, conditions
from morphogen.state.decision import ActionSpec
from morphogen.state.env import Slots
from morphogen.state.tree_ops import choose, constant_table, unsafe_new
from morphogen.vocab import action as tables
from morphogen.vocab.action import RELEVANT, SIZES, Head, Op, Reason
from morphogen.vocab.blueprint import EMPTY, Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import DEFAULT_STEEPNESS

_NO_REASON = 1 << 30  # larger than every code, so that the smallest one wins


def decode(action: Tensor, slots: Slots, limits: Limits, *, conditions_met: Tensor | None = None) -> ActionSpec:
    """Translate head indices to an action; an invalid action becomes WAIT with a reason.

    Shapes: action int64 [E, 8] (`Head` order), slots [E] -> ActionSpec [E].  conditions_met: bool [7, E, 6, S] from
    `conditions`, if known.
    Promise: total (any integers are taken), and an irrelevant head never matters.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=2, seed=0)
        >>> keep, grow = [mg.Op.FOSSILIZE, 0, 0, 0, 0, 0, 0, 0], [mg.Op.GERMINATE, 1, mg.Blueprint.CONV_LIGHT] + 5 * [0]
        >>> spec = mg.rules.decode(torch.tensor([keep, grow]), env.reset()[0].slots, env.limits)
        >>> [mg.Op(op).name for op in spec.op.tolist()], spec.target.tolist(), spec.tempo.tolist()
        (['WAIT', 'GERMINATE'], [[False, False], [False, True]], [0, 3])
        >>> mg.vocab.action.Reason(spec.reason[0].item()).name
        'WRONG_STAGE'
    """
    device, count = action.device, slots.stage.shape[1]
    sizes = constant_table(tuple(SIZES.get(head, count) for head in Head), torch.int64, device)
    index = torch.minimum(action.clamp(min=0), sizes - 1)
    relevant = constant_table(RELEVANT, torch.bool, device)[index[:, Head.OP]]
    in_range = ((action == index) | ~relevant).all(-1)
    terms = conditions(slots, limits) if conditions_met is None else conditions_met
    reason = choose(in_range, _invalid_reason(index, relevant, terms, limits), int(Reason.OUT_OF_RANGE))
    valid = reason == int(Reason.NONE)
    used = relevant & valid[:, None]
    slot = choose(used[:, Head.SLOT], index[:, Head.SLOT], 0)
    return unsafe_new(
        ActionSpec,
        slots,
        requested_op=index[:, Head.OP],
        op=choose(valid, index[:, Head.OP], int(Op.WAIT)),
        slot=slot,
        target=(torch.arange(count, device=device) == slot[:, None]) & used[:, Head.SLOT, None],
        **_head_values(index, used, slots.alpha.dtype),
        valid=valid,
        reason=reason,
    )


def _invalid_reason(index: Tensor, relevant: Tensor, conditions_met: Tensor, limits: Limits) -> Tensor:
    """Smallest code of the reasons against an action in range; 0 if it is legal.  index int64 [E, 8] -> int64 [E]."""
    device, rows = index.device, torch.arange(index.shape[0], device=index.device)
    holds = conditions_met[:, rows, index[:, Head.OP], index[:, Head.SLOT]] | ~relevant[:, Head.SLOT]
    allowed = constant_table(tuple(code in limits.allowed_blueprints for code in Blueprint), torch.bool, device)
    named = allowed[index[:, Head.BLUEPRINT]] | ~relevant[:, Head.BLUEPRINT]
    codes = constant_table((*map(int, CONDITIONS), int(Reason.BLUEPRINT_NOT_ALLOWED)), torch.int64, device)
    smallest = choose(torch.cat([holds, named[None]]), _NO_REASON, codes[:, None]).amin(0)
    return choose(smallest == _NO_REASON, int(Reason.NONE), smallest)


def _head_values(index: Tensor, used: Tensor, real: torch.dtype) -> dict[str, Tensor]:
    """Meanings of the value heads; the value of "not used" where the op has no such head."""

    def meaning(head: Head, values: tuple[float, ...], unused: float, dtype: torch.dtype = torch.int64) -> Tensor:
        return choose(used[:, head], constant_table(values, dtype, index.device)[index[:, head]], unused)

    germinates, ramp = used[:, Head.BLUEPRINT], meaning(Head.ALPHA_CURVE, tables.CURVE_SHAPE, 0)
    return {
        "blueprint": choose(germinates, index[:, Head.BLUEPRINT], EMPTY),
        "algorithm": meaning(Head.STYLE, tables.STYLE_ALGORITHM, 0),
        "tempo": meaning(Head.TEMPO, tables.TEMPO_EPOCHS, 0),
        "alpha_target": meaning(Head.ALPHA_TARGET, tables.ALPHA_TARGETS, 0.0, real),
        "alpha_steps": meaning(Head.ALPHA_SPEED, tables.SPEED_TICKS, 0),
        "curve": torch.where(germinates, meaning(Head.STYLE, tables.STYLE_CURVE, 0), ramp),
        "steepness": meaning(Head.ALPHA_CURVE, tables.CURVE_STEEPNESS, DEFAULT_STEEPNESS, real),
    }
