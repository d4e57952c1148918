"""Copies of activations: chosen rows, and images with their channels innermost."""

from collections.abc import Sequence

from torch import Tensor

from morphogen.kernels.native import block_args, call_kernel, has_kernel, operator


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows in the given order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    if has_kernel(x):
        return _take(x, rows)
    return x.flatten(0, -3).index_select(1, rows).view(*x.shape[:-2], -1, x.shape[-1])  # three axes: far faster


def take_row_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Select rows in the given order, in blocks of the given sizes; x is read once.

    Shapes: x [B, ..., R, C], rows int64 [N], sizes sum to N -> [B, ..., n, C] each.
    """
    if len(sizes) > 1 and has_kernel(x):
        return _take_blocks(x, rows, sizes)
    return [take_rows(x, part) for part in rows.split(list(sizes))]


def channels_innermost(x: Tensor) -> Tensor:
    """Return images of every network with channels innermost.  x [E, B, C, H, W] -> [B, H, W, E, C]."""
    return _channels_innermost(x) if has_kernel(x) else x.permute(1, 3, 4, 0, 2).contiguous()


def _kernel_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    outputs, (count, channels) = _shapes_blocks(x, rows, sizes), x.shape[-2:]
    sizes = x.shape[:-2].numel(), count, channels, rows.shape[0]
    call_kernel("take", *sizes, x.contiguous(), rows.contiguous(), block_args(outputs))
    return outputs


def _shapes_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-2], size, x.shape[-1]) for size in sizes]


def _kernel_innermost(x: Tensor) -> Tensor:
    out, (sets, samples, channels) = _shapes_innermost(x), x.shape[:3]
    call_kernel("innermost", sets, samples, channels, x.shape[3:].numel(), x.contiguous(), out)
    return out


def _shapes_innermost(x: Tensor) -> Tensor:
    sets, samples, channels, height, width = x.shape
    return x.new_empty(samples, height, width, sets, channels)


_take = operator(
    "take(Tensor x, Tensor rows) -> Tensor",
    lambda x, rows: _kernel_blocks(x, rows, rows.shape)[0],
    lambda x, rows: _shapes_blocks(x, rows, rows.shape)[0],
)
_take_blocks = operator(
    "take_blocks(Tensor x, Tensor rows, SymInt[] sizes) -> Tensor[]", _kernel_blocks, _shapes_blocks
)
_channels_innermost = operator("channels_innermost(Tensor x) -> Tensor", _kernel_innermost, _shapes_innermost)
