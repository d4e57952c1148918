"""Operations on trees of tensors: build, replace and select per env, and per slot; constant tables on the device."""

import functools
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def expand_mask(mask: Tensor, like: Tensor) -> Tensor:
    """Append axes of length 1 to a per-env mask, ready to broadcast.  mask [E], like [E, ...] -> [E, 1, ...]."""
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim())) if like.dim() > mask.dim() else mask


def unsafe_new(kind: type, like: Any, **leaves: Any) -> Any:
    """Build a tensor class or TensorDict without checking that leaves have batch size and device of `like`.

    The checks of the constructor take longer than most steps compute.  Raises: an error for a leaf that is no field.
    """
    source = TensorDict._new_unsafe(leaves, batch_size=like.batch_size, device=like.device)
    return source if kind is TensorDict else kind.from_tensordict(source)


def replace(tree, **parts: Any):
    """Return the tensor class with the named parts exchanged; all others are shared, so never write into a part.

    Parts must have batch size and device of `tree`.  Raises: AttributeError for an unknown name.
    """
    leaves = dict(tree.items())
    if unknown := sorted(parts.keys() - leaves.keys()):
        raise AttributeError(f"{type(tree).__name__}: expected some of {', '.join(leaves)}, got {', '.join(unknown)}")
    return unsafe_new(type(tree), tree, **leaves | parts)


def refuse_gradients(step: str, *inputs: Tensor) -> None:
    """Raise RuntimeError if a derivative through a step is requested, which would be 0 or lack terms.

    inputs: parameters that the step reads.  Parameters that require a gradient are fine under `torch.no_grad`.
    """
    if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in inputs):
        raise RuntimeError(
            f"{step} has no derivative with respect to parameters: expected inputs without requires_grad, or "
            "torch.no_grad; gradients within training are computed inside of it"
        )


def select(mask: Tensor, yes: Any, no: Any) -> Any:
    """Select per env the row of `yes` where the mask is True, else of `no`.  mask bool [E]; equal trees [E]."""
    if isinstance(yes, Tensor):
        return torch.where(expand_mask(mask, yes), yes, no)
    other = dict(no.items())
    return unsafe_new(type(yes), yes, **{name: select(mask, leaf, other[name]) for name, leaf in yes.items()})


def select_slots(mask: Tensor, yes: TensorDict, no: TensorDict) -> TensorDict:
    """Select per env and slot the seed of `yes` where the mask is True, else that of `no`.  mask bool [E, S].

    Seeds are stored as `{slot name: {params, momentum: [E, P_s]}}`, keys in slot order.
    """
    rows = {name: select(mask[:, s], yes[name], no[name]) for s, name in enumerate(no.keys())}
    return unsafe_new(TensorDict, no, **rows)


def zero_empty_slots(seeds: TensorDict, occupied: Tensor) -> TensorDict:
    """Set the parameters of empty slots to 0.  occupied bool [E, S]."""
    rows = {}
    for mask, (name, row) in zip(occupied.unbind(1), seeds.items(), strict=True):
        leaves = {key: torch.where(expand_mask(mask, leaf), leaf, 0.0) for key, leaf in row.items()}
        rows[name] = unsafe_new(TensorDict, row, **leaves)
    return unsafe_new(TensorDict, seeds, **rows)


def masked_update(tree, mask: Tensor, **leaves: Tensor | float):
    """Return the part with the named leaves replaced where the mask is True.

    Values are tensors or numbers, cast to the dtype of the old leaf.  The mask broadcasts against every named leaf.
    """
    old = dict(tree.items())
    for name, new in leaves.items():
        leaf, is_tensor = old[name], isinstance(new, Tensor)
        old[name] = torch.where(mask, new.to(leaf.dtype), leaf) if is_tensor else leaf.masked_fill(mask, new)
    return unsafe_new(type(tree), tree, **old)


class _Tables:
    """Constant tables as attributes, each built once per device."""


_TABLES = _Tables()


@functools.cache
def _cache_table(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    """Return the name of the attribute that holds a table; build a new table."""
    name = f"table_{len(vars(_TABLES))}"
    setattr(_TABLES, name, torch.tensor(values, dtype=dtype, device=device))
    return name


@torch.compiler.assume_constant_result
def _table_name(values: tuple, dtype: torch.dtype, device: torch.device) -> str:
    return _cache_table(values, dtype, device)


def constant_table(values: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a constant as a tensor, built once per device: later calls copy nothing.  Not for use in `torch.func`.

    A graph reads the table like an attribute of a module: assumed-constant results of two calls stop the compiler.
    """
    return getattr(_TABLES, _table_name(values, dtype, device))
