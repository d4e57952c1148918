"""Operators that read a value of the device on the host."""

from typing import Any

import torch
from torch import Tensor

# Operators whose result on the host, or its shape, depends on values of the device.
READING_OPS = {
    "_local_scalar_dense",
    "_unique",
    "_unique2",
    "argwhere",
    "bincount",
    "equal",
    "histc",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "nonzero_numpy",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
}
_INDEXING_OPS = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


def reads_host(operator: Any, args: tuple, kwargs: dict) -> bool:
    """Return True if the host reads a value in this call of an operator, or if the shape of its
    result is a value.
    """
    name = operator.overloadpacket.__name__
    indices = (
        [index for index in args[1] if isinstance(index, Tensor)] if name in _INDEXING_OPS else []
    )
    masks = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
    crosses = name in ("_to_copy", "copy_") and _leaves_device(name, args, kwargs)
    repeats = name == "repeat_interleave" and kwargs.get("output_size") is None
    return name in READING_OPS or masks or crosses or repeats


def _leaves_device(name: str, args: tuple, kwargs: dict) -> bool:
    """Return True for a copy from an accelerator to the CPU."""
    source = args[1] if name == "copy_" else args[0]
    target = args[0].device if name == "copy_" else kwargs.get("device")
    return (
        source.device.type not in ("cpu", "meta")
        and target is not None
        and torch.device(target).type == "cpu"
    )
