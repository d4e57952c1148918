"""Rows of the seed storage chosen by slot: `{slot name: {params, momentum: [E, P_s]}}`, keys in slot order."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.tree_ops import expand_mask, select, unsafe_new


def select_slots(mask: Tensor, yes: TensorDict, no: TensorDict) -> TensorDict:
    """Per env and slot: the seed of `yes` where the mask is True, else that of `no`.  mask bool [E, S]."""
    rows = {name: select(mask[:, s], yes[name], no[name]) for s, name in enumerate(no.keys())}
    return unsafe_new(TensorDict, no, **rows)


def zero_empty_slots(seeds: TensorDict, occupied: Tensor) -> TensorDict:
    """Zeros where a slot holds no seed, the rest as it is.  occupied bool [E, S]."""
    rows = {name: _mask_row(occupied[:, s], seeds[name]) for s, name in enumerate(seeds.keys())}
    return unsafe_new(TensorDict, seeds, **rows)


def _mask_row(mask: Tensor, row: TensorDict) -> TensorDict:
    return unsafe_new(
        TensorDict, row, **{name: torch.where(expand_mask(mask, leaf), leaf, 0.0) for name, leaf in row.items()}
    )
