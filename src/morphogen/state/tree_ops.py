"""Small tools on trees of tensors: choose per env, constant tables that live on the device."""

import functools
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def expand_mask(mask: Tensor, like: Tensor) -> Tensor:
    """A per-env mask with trailing axes of length 1, ready to broadcast.  mask [E], like [E, ...] -> [E, 1, ...]."""
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim())) if like.dim() > mask.dim() else mask


def unsafe_new(kind: type, like: Any, **leaves: Any) -> Any:
    """A tensor class, or a TensorDict, of leaves that have batch size and device of `like`.

    Nobody looks whether they have: the constructor asks every leaf, which takes longer than most steps compute.  A leaf
    that is no field is an error all the same.
    """
    source = TensorDict._new_unsafe(leaves, batch_size=like.batch_size, device=like.device)
    return source if kind is TensorDict else kind.from_tensordict(source)


def replace(tree, **parts: Any):
    """The tensor class with the named parts exchanged and all others shared, so that nobody may write into a part.

    Parts have batch size and device of the whole.
    """
    leaves = dict(tree.items())
    odd = sorted(parts.keys() - leaves.keys())
    if odd:
        raise AttributeError(f"{type(tree).__name__} has no {', '.join(odd)}; want some of {', '.join(leaves)}")
    return unsafe_new(type(tree), tree, **leaves | parts)


def select(mask: Tensor, yes: Any, no: Any) -> Any:
    """Per env: the row of `yes` where the mask is True, else that of `no`.  mask bool [E]; equal trees [E] -> tree."""
    other = dict(no.items())
    return unsafe_new(type(yes), yes, **{name: _select_leaf(mask, leaf, other[name]) for name, leaf in yes.items()})


def _select_leaf(mask: Tensor, yes: Any, no: Any) -> Any:
    return torch.where(expand_mask(mask, yes), yes, no) if isinstance(yes, Tensor) else select(mask, yes, no)


def masked_update(tree, mask: Tensor, **leaves: Tensor | float):
    """The part with the named leaves replaced where the mask is True; values are tensors or plain numbers.

    Dtypes stay those of the part.  where broadcasts against every named leaf.
    """
    old = dict(tree.items())
    return unsafe_new(
        type(tree), tree, **old | {name: _update_leaf(old[name], mask, new) for name, new in leaves.items()}
    )


def _update_leaf(old: Tensor, mask: Tensor, new: Tensor | float) -> Tensor:
    return torch.where(mask, new.to(old.dtype), old) if isinstance(new, Tensor) else old.masked_fill(mask, new)


class _Tables:
    """Constant tables as attributes, each made once per device."""


_TABLES = _Tables()


@functools.cache
def _cache_table(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    """The attribute that holds a table, which is made where it is new."""
    name = f"table_{len(vars(_TABLES))}"
    setattr(_TABLES, name, torch.tensor(values, dtype=dtype, device=device))
    return name


@torch.compiler.assume_constant_result
def _table_name(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    return _cache_table(values, dtype, device)


def constant_table(values: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant as a tensor, made once per device: later calls copy nothing.  Never call it inside `torch.func`.

    A graph reads it like an attribute of a module; two *results* that are assumed constant stop the compiler.
    """
    return getattr(_TABLES, _table_name(values, dtype, device))
