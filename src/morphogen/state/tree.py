"""Small tools on trees of tensors: choose per env, constant tables that live on the device."""

import functools
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def lift(mask: Tensor, like: Tensor) -> Tensor:
    """A per-env mask with trailing axes of length 1, ready to broadcast.  mask [E], like [E, ...] -> [E, 1, ...]."""
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim()))


def select(mask: Tensor, yes: Any, no: Any) -> Any:
    """Per env: the row of `yes` where the mask is True, else that of `no`.  mask bool [E]; equal trees [E] -> tree."""
    return yes.apply(lambda a, b: torch.where(lift(mask, a), a, b), no)


def write(part, where: Tensor, **leaves: Tensor | float):
    """The part with the named leaves replaced where the mask is True; values are tensors or plain numbers.

    Dtypes stay those of the part.  where broadcasts against every named leaf.
    """
    old = {name: getattr(part, name) for name in leaves}
    return part.replace(**{name: torch.where(where, leaves[name], old[name]).to(old[name].dtype) for name in leaves})


def renewed(whole, **parts: Any):
    """The tensor class with the named parts exchanged and all others shared, so that nobody may write into a part.

    Parts have batch size and device of the whole.  `replace` would go through every leaf of all of them.
    """
    odd = sorted(parts.keys() - set(whole.keys()))
    if odd:
        raise AttributeError(f"{type(whole).__name__} has no {', '.join(odd)}; want some of {', '.join(whole.keys())}")
    source = TensorDict(dict(whole.items()) | parts, batch_size=whole.batch_size, device=whole.device)
    return type(whole).from_tensordict(source)


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
