"""Small tools on trees of tensors: choose per env, constant tables that live on the device."""

import functools
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def lift(mask: Tensor, like: Tensor) -> Tensor:
    """A per-env mask with trailing axes of length 1, ready to broadcast.  mask [E], like [E, ...] -> [E, 1, ...]."""
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim())) if like.dim() > mask.dim() else mask


def made(kind: type, like: Any, **leaves: Any) -> Any:
    """A tensor class, or a TensorDict, of leaves that have batch size and device of `like`.

    Nobody looks whether they have: the constructor asks every leaf, which takes longer than most steps compute.  A leaf
    that is no field is an error all the same.
    """
    source = TensorDict._new_unsafe(leaves, batch_size=like.batch_size, device=like.device)
    return source if kind is TensorDict else kind.from_tensordict(source)


def renewed(whole, **parts: Any):
    """The tensor class with the named parts exchanged and all others shared, so that nobody may write into a part.

    Parts have batch size and device of the whole.
    """
    leaves = dict(whole.items())
    odd = sorted(parts.keys() - leaves.keys())
    if odd:
        raise AttributeError(f"{type(whole).__name__} has no {', '.join(odd)}; want some of {', '.join(leaves)}")
    return made(type(whole), whole, **leaves | parts)


def select(mask: Tensor, yes: Any, no: Any) -> Any:
    """Per env: the row of `yes` where the mask is True, else that of `no`.  mask bool [E]; equal trees [E] -> tree."""
    other = dict(no.items())
    return made(type(yes), yes, **{name: _chosen(mask, leaf, other[name]) for name, leaf in yes.items()})


def _chosen(mask: Tensor, yes: Any, no: Any) -> Any:
    return torch.where(lift(mask, yes), yes, no) if isinstance(yes, Tensor) else select(mask, yes, no)


def write(part, where: Tensor, **leaves: Tensor | float):
    """The part with the named leaves replaced where the mask is True; values are tensors or plain numbers.

    Dtypes stay those of the part.  where broadcasts against every named leaf.
    """
    old = dict(part.items())
    return made(type(part), part, **old | {name: _written(old[name], where, new) for name, new in leaves.items()})


def _written(old: Tensor, where: Tensor, new: Tensor | float) -> Tensor:
    return torch.where(where, new.to(old.dtype), old) if isinstance(new, Tensor) else old.masked_fill(where, new)


class _Tables:
    """Constant tables as attributes, each made once per device."""


_TABLES = _Tables()


@functools.cache
def _made(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    """The attribute that holds a table, which is made where it is new."""
    name = f"table_{len(vars(_TABLES))}"
    setattr(_TABLES, name, torch.tensor(values, dtype=dtype, device=device))
    return name


@torch.compiler.assume_constant_result
def _name(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    return _made(values, dtype, device)


def table(values: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant as a tensor, made once per device: later calls copy nothing.  Never call it inside `torch.func`.

    A graph reads it like an attribute of a module; two *results* that are assumed constant stop the compiler.
    """
    return getattr(_TABLES, _name(values, dtype, device))
