"""Where kernels of our own serve, and how they become operators of torch."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _load_extension() -> Any:
    """The extension; None where the package was installed without a C compiler."""
    try:
        return importlib.import_module("morphogen.kernels._native")
    except ImportError:
        return None


_native = _load_extension()
AVAILABLE = _native is not None
CAN_CONVOLVE = AVAILABLE and _native.convolves()  # whether the processor has what convolutions of our own need
MAX_CHANNELS = 512  # channels of a network, `WIDTH` in kernels.h
_DTYPES = (torch.float32, torch.int64, torch.uint8)
_LIBRARY = torch.library.Library("morphogen", "FRAGMENT")


def has_kernel(x: Tensor) -> bool:
    """Whether kernels of our own serve activations like these.  x [B, H, W, R, C]."""
    return AVAILABLE and x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[-1] <= MAX_CHANNELS


def operator(schema: str, kernel: Callable, shapes: Callable) -> Callable[..., Any]:
    """A kernel as an operator of torch, which modes see and the compiler calls as it is.

    schema: as torch writes it; kernel: what runs; shapes: the same in shapes and dtypes alone.
    """
    name = _LIBRARY.define(schema).split("(")[0]
    _LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"morphogen::{name}", shapes, lib=_LIBRARY)
    return getattr(torch.ops.morphogen, name).default


def call_kernel(name: str, *args: Any) -> None:
    """Run a kernel; a tensor is its address, None is none."""
    getattr(_native, name)(*(_kernel_arg(arg) for arg in args))


def _kernel_arg(arg: Any) -> Any:
    return _address(arg) if isinstance(arg, Tensor) else 0 if arg is None else arg


def _address(x: Tensor) -> int:
    if x.dtype not in _DTYPES:
        raise TypeError(f"a kernel was given {x.dtype}; want one of {', '.join(map(str, _DTYPES))}")
    return x.data_ptr()


def make_contiguous(x: Tensor | None) -> Tensor | None:
    """The tensor, contiguous."""
    return None if x is None else x.contiguous()


def make_evenly_strided(x: Tensor) -> Tensor:
    """Activations [..., R, C] whose pixels lie evenly in memory, each contiguous; a slice of rows stays as it is."""
    steps = x.stride()
    pairs = zip(steps[:-3], x.shape[1:-2], steps[1:-2], strict=True)
    even = steps[-1] == 1 and steps[-2] == x.shape[-1] and all(outer == many * step for outer, many, step in pairs)
    return x if even else x.contiguous()


def block_args(blocks: Sequence[Tensor]) -> tuple[int, ...]:
    """Blocks as kernels take them: address, networks, and floats between pixels, one block after the other."""
    return tuple(x for block in blocks for x in (_address(block), block.shape[-2], block.stride(-3)))
