"""Small tools on trees of tensors: choose per env, constant tables that live on the device."""

import functools

import torch
from torch import Tensor


def lift(mask: Tensor, like: Tensor) -> Tensor:
    """A per-env mask with trailing axes of length 1, ready to broadcast.  mask [E], like [E, ...] -> [E, 1, ...]."""
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim()))


def select(mask: Tensor, yes, no):
    """Per env: the row of `yes` where the mask is True, else that of `no`.  mask bool [E]; equal trees [E] -> tree."""
    return yes.apply(lambda a, b: torch.where(lift(mask, a), a, b), no)


@functools.cache
def _table(values: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@torch.compiler.assume_constant_result
def table(values: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A constant as a tensor, made once per device: later calls copy nothing.  Never call it inside `torch.func`."""
    return _table(values, dtype, device)
