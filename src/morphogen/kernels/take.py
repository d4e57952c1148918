"""Where activations lie: choosing rows, and images with their channels innermost."""

from collections.abc import Sequence

import torch
from torch import Tensor

from morphogen.kernels.native import call, fits, lanes, operator


def take(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Chosen rows, in their order, in parts of so many.

    Shapes: x [B, ..., R, C], rows int64 [N] -> [B, ..., n, C] each.
    """
    return (_take if fits(x) else _plain)(x, rows, sizes)


def innermost(x: Tensor) -> Tensor:
    """Images of every network, channels innermost.  x [E, B, C, H, W] -> [B, H, W, E, C]."""
    return (_innermost if fits(x) else _plain_innermost)(x)


def _kernel(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    out, (count, channels) = _shapes(x, rows, sizes), x.shape[-2:]
    call("take", x.shape[:-2].numel(), count, channels, rows.shape[0], x.contiguous(), rows.contiguous(), lanes(out))
    return out


def _shapes(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-2], size, x.shape[-1]) for size in sizes]


def _kernel_innermost(x: Tensor) -> Tensor:
    out, (sets, samples, channels) = _turned(x), x.shape[:3]
    call("innermost", sets, samples, channels, x.shape[3:].numel(), x.contiguous(), out)
    return out


def _turned(x: Tensor) -> Tensor:
    sets, samples, channels, height, width = x.shape
    return x.new_empty(samples, height, width, sets, channels)


_take = operator("take(Tensor x, Tensor rows, SymInt[] sizes) -> Tensor[]", _kernel, _shapes)
_innermost = operator("innermost(Tensor x) -> Tensor", _kernel_innermost, _turned)


def _plain(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    lead, channels = x.shape[:-2], x.shape[-1]
    flat = x.flatten(0, -3)  # three axes: far faster
    return [flat.index_select(1, own).view(*lead, -1, channels) for own in rows.split(list(sizes))]


def _plain_innermost(x: Tensor) -> Tensor:
    return x.permute(1, 3, 4, 0, 2).contiguous()
