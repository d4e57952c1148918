"""Selection of seeds in their storage `{slot name: {params, momentum: [E, P_s]}}`, keys in slot order."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.tree_ops import expand_mask, select, unsafe_new


def select_slots(mask: Tensor, yes: TensorDict, no: TensorDict) -> TensorDict:
    """Select per env and slot the seed of `yes` where the mask is True, else the seed of `no`.  mask bool [E, S]."""
    rows = {name: select(mask[:, s], yes[name], no[name]) for s, name in enumerate(no.keys())}
    return unsafe_new(TensorDict, no, **rows)


def zero_empty_slots(seeds: TensorDict, occupied: Tensor) -> TensorDict:
    """Set the parameters of empty slots to 0.  occupied bool [E, S]."""
    rows = {}
    for s, (name, row) in enumerate(seeds.items()):
        mask = occupied[:, s]
        leaves = {key: torch.where(expand_mask(mask, leaf), leaf, 0.0) for key, leaf in row.items()}
        rows[name] = unsafe_new(TensorDict, row, **leaves)
    return unsafe_new(TensorDict, seeds, **rows)
