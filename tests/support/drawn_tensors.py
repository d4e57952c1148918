"""Drawn inputs of rules: tensors of envs, and validations of all coalitions."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from morphogen.rules import attribution
from morphogen.vocab.action import Head


@st.composite
def tensors(draw, *kinds, envs=3, lead=()):
    """Tensors [*lead, E, ...] one of each kind (values, dtype, axes after the env)."""
    return tuple(
        _filled(draw, values, (*lead, envs, *axes), dtype) for values, dtype, axes in kinds
    )


def _filled(draw, values, shape, dtype):
    count = int(torch.tensor(shape).prod())
    return torch.tensor(draw(st.lists(values, min_size=count, max_size=count)), dtype=dtype).view(
        shape
    )


def measured(part):
    """A validation of all coalitions: an accuracy that goes with the coalition alone."""
    coalition, evaluated = attribution.coalitions(part, torch.zeros(len(part), 2, 3), pairs=2)
    return 40.0 + 3.0 * coalition.float() - 0.5 * coalition.float() ** 2, coalition, evaluated, part


def permute_action(action: Tensor, order: Sequence[int]) -> Tensor:
    """Permute the slots of actions; a slot out of range is unchanged.  int64 [E, 8]."""
    place = torch.tensor(order).argsort()
    slot = action[:, Head.SLOT]
    known = (slot >= 0) & (slot < len(order))
    out = action.clone()
    out[:, Head.SLOT] = torch.where(known, place[slot.clamp(0, len(order) - 1)], slot)
    return out
