"""Drawn inputs of rules: tensors of envs, and validations of all coalitions."""

import torch
from hypothesis import strategies as st

from morphogen.rules import attribution


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
