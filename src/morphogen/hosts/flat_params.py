"""Leaves of a network in one flat buffer, so that an operation on all of them is one launch."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from morphogen.hosts.optim import ParamTree


def flatten_leaves(tree: Mapping[str, Tensor]) -> Tensor:
    """Copy leaves of any shape and one dtype into a buffer [P]."""
    return torch.cat([leaf.flatten() for leaf in tree.values()])


def split_leaves(buffer: Tensor, like: Mapping[str, Tensor], *, copy: bool = False) -> ParamTree:
    """Return a buffer [P] as leaves in names, order and shapes of `like`: views, or copies, each
    aligned like any tensor.
    """
    split = cast(Any, torch).split_with_sizes_copy if copy else torch.split_with_sizes
    parts = split(buffer, [leaf.numel() for leaf in like.values()])
    return {
        name: part.view(leaf.shape) for (name, leaf), part in zip(like.items(), parts, strict=True)
    }
