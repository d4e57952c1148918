"""Decoding of head indices into an executable action."""

from collections.abc import Sequence

import torch
from torch import Tensor

from morphogen.rules.legality import CONDITIONS, conditions, relevant_heads
from morphogen.state.decision import ActionSpec
from morphogen.state.env import Slots
from morphogen.state.tree_ops import choose, constant_table, positions, unsafe_new
from morphogen.vocab import action as tables
from morphogen.vocab.action import SIZES, Head, Op, Reason
from morphogen.vocab.blueprint import EMPTY, Blueprint
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import DEFAULT_STEEPNESS

_NO_REASON = 1 << 30  # larger than every code, so that the smallest one wins
_UNUSED = max(SIZES.values())  # index of a head that the op does not use


def _pad(values: Sequence[float], unused: float) -> tuple[float, ...]:
    """Values of a head by index; the last one belongs to an unused head."""
    return (*values, *[unused] * (_UNUSED + 1 - len(values)))


# Leaf of an action -> head, and a value per index; reals are in the dtype of alpha.
_MEANINGS: dict[str, tuple[Head, tuple[float, ...]]] = {
    "blueprint": (Head.BLUEPRINT, _pad(range(SIZES[Head.BLUEPRINT]), EMPTY)),
    "algorithm": (Head.STYLE, _pad(tables.STYLE_ALGORITHM, 0)),
    "first_curve": (Head.STYLE, _pad(tables.STYLE_CURVE, 0)),
    "tempo": (Head.TEMPO, _pad(tables.TEMPO_EPOCHS, 0)),
    "alpha_target": (Head.ALPHA_TARGET, _pad(tables.ALPHA_TARGETS, 0.0)),
    "alpha_steps": (Head.ALPHA_SPEED, _pad(tables.SPEED_TICKS, 0)),
    "ramp_curve": (Head.ALPHA_CURVE, _pad(tables.CURVE_SHAPE, 0)),
    "steepness": (Head.ALPHA_CURVE, _pad(tables.CURVE_STEEPNESS, DEFAULT_STEEPNESS)),
}


def decode(
    action: Tensor, slots: Slots, limits: Limits, *, conditions_met: Tensor | None = None
) -> ActionSpec:
    """Translate head indices to an action; an invalid action becomes WAIT with a reason.

    Shapes: action int64 [E, 8] (`Head` order), slots [E] -> ActionSpec [E].  conditions_met: bool
    [7, E, 6, S] from `conditions`, if known.
    Promise: total (any integers are taken), and an irrelevant head never matters.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> keep, grow = (
        ...     [mg.Op.FOSSILIZE, 0, 0, 0, 0, 0, 0, 0],
        ...     [mg.Op.GERMINATE, 1, mg.Blueprint.CONV_LIGHT] + 5 * [0],
        ... )
        >>> spec = mg.rules.decode(torch.tensor([keep, grow]), env.reset()[0].slots, env.limits)
        >>> [mg.Op(op).name for op in spec.op.tolist()], spec.target.tolist(), spec.tempo.tolist()
        (['WAIT', 'GERMINATE'], [[False, False], [False, True]], [0, 3])
        >>> mg.vocab.action.Reason(spec.reason[0].item()).name
        'WRONG_STAGE'
    """
    device = action.device
    count = slots.stage.shape[1]
    sizes = constant_table(tuple(SIZES.get(head, count) for head in Head), torch.int64, device)
    index = torch.minimum(action.clamp(min=0), sizes - 1)
    relevant = relevant_heads(index[:, Head.OP])
    in_range = ((action == index) | ~relevant).all(-1)
    terms = conditions(slots, limits) if conditions_met is None else conditions_met
    reason = choose(
        in_range, _invalid_reason(index, relevant, terms, limits), int(Reason.OUT_OF_RANGE)
    )
    valid = reason == int(Reason.NONE)
    used = relevant & valid[:, None]
    slot = choose(used[:, Head.SLOT], index[:, Head.SLOT], 0)
    return unsafe_new(
        ActionSpec,
        slots,
        requested_op=index[:, Head.OP],
        op=choose(valid, index[:, Head.OP], int(Op.WAIT)),
        slot=slot,
        target=(positions(count, device) == slot[:, None]) & used[:, Head.SLOT, None],
        **_head_values(index, used, slots.alpha.dtype),
        valid=valid,
        reason=reason,
    )


def _invalid_reason(
    index: Tensor, relevant: Tensor, conditions_met: Tensor, limits: Limits
) -> Tensor:
    """Smallest code of the reasons against an action in range; 0 if it is legal.  index int64 [E,
    8] -> int64 [E].
    """
    device = index.device
    rows = torch.arange(index.shape[0], device=device)
    holds = (
        conditions_met[:, rows, index[:, Head.OP], index[:, Head.SLOT]] | ~relevant[:, Head.SLOT]
    )
    blueprints = limits.allowed_blueprints
    allowed = constant_table(tuple(code in blueprints for code in Blueprint), torch.bool, device)
    named = allowed[index[:, Head.BLUEPRINT]] | ~relevant[:, Head.BLUEPRINT]
    codes = constant_table(
        (*map(int, CONDITIONS), int(Reason.BLUEPRINT_NOT_ALLOWED)), torch.int64, device
    )
    smallest = choose(torch.cat([holds, named[None]]), _NO_REASON, codes[:, None]).amin(0)
    return choose(smallest == _NO_REASON, int(Reason.NONE), smallest)


def _head_values(index: Tensor, used: Tensor, real: torch.dtype) -> dict[str, Tensor]:
    """Meanings of the value heads; the value of "not used" where the op has no such head."""
    chosen = index.masked_fill(~used, _UNUSED)
    values: dict[str, Tensor] = {}
    for name, (head, row) in _MEANINGS.items():
        dtype = real if isinstance(row[0], float) else torch.int64
        values[name] = constant_table(row, dtype, index.device)[chosen[:, head]]
    ramp = values.pop("ramp_curve")
    first = values.pop("first_curve")
    return values | {"curve": torch.where(used[:, Head.BLUEPRINT], first, ramp)}
