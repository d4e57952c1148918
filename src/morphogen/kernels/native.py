"""Where kernels of our own serve, and how they become operators of torch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

try:
    from morphogen.kernels import _native
except ImportError:  # installed without a C compiler
    _native = None

AVAILABLE = _native is not None
WIDEST = 512  # channels of a network, `WIDTH` in kernels.h
_LIBRARY = torch.library.Library("morphogen", "FRAGMENT")


def fits(x: Tensor) -> bool:
    """Whether kernels of our own serve activations like these.  x [B, H, W, R, C]."""
    return AVAILABLE and x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[-1] <= WIDEST


def operator(schema: str, kernel: Callable, shapes: Callable) -> Callable[..., Any]:
    """A kernel as an operator of torch, which modes see and the compiler calls as it is.

    schema: as torch writes it; kernel: what runs; shapes: the same in shapes and dtypes alone.
    """
    name = _LIBRARY.define(schema).split("(")[0]
    _LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"morphogen::{name}", shapes, lib=_LIBRARY)
    return getattr(torch.ops.morphogen, name).default


def call(name: str, *args: Any) -> None:
    """Run a kernel; a tensor is its address, None is none."""
    getattr(_native, name)(*(_plain(arg) for arg in args))


def _plain(arg: Any) -> Any:
    return arg.data_ptr() if isinstance(arg, Tensor) else 0 if arg is None else arg


def whole(x: Tensor | None) -> Tensor | None:
    """The tensor, contiguous."""
    return None if x is None else x.contiguous()


def striped(x: Tensor) -> Tensor:
    """Activations whose pixels lie evenly in memory, each contiguous; a slice of rows stays as it is."""
    b, h, w, r, c = x.stride()
    _, height, width, _, channels = x.shape
    even = c == 1 and r == channels and h == width * w and b == height * h
    return x if even else x.contiguous()


def lanes(blocks: Sequence[Tensor]) -> tuple[int, ...]:
    """Blocks as kernels take them: address, networks, and floats between pixels, one block after the other."""
    return tuple(x for block in blocks for x in (block.data_ptr(), block.shape[-2], block.stride(-3)))
