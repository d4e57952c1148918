"""Where activations lie: choosing rows, and images with their channels innermost."""

from collections.abc import Sequence

from torch import Tensor

from morphogen.kernels.native import block_args, call_kernel, has_kernel, operator


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Chosen rows, in their order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    return (_take if has_kernel(x) else _torch_take)(x, rows)


def take_row_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Chosen rows, in their order, in parts of so many: x is read once.

    Shapes: x [B, ..., R, C], rows int64 [N] -> [B, ..., n, C] each.
    """
    if len(sizes) > 1 and has_kernel(x):
        return _deal(x, rows, sizes)
    return [take_rows(x, own) for own in rows.split(list(sizes))]


def channels_innermost(x: Tensor) -> Tensor:
    """Images of every network, channels innermost.  x [E, B, C, H, W] -> [B, H, W, E, C]."""
    return (_innermost if has_kernel(x) else _torch_innermost)(x)


def _kernel(x: Tensor, rows: Tensor) -> Tensor:
    return _kernel_blocks(x, rows, rows.shape)[0]


def _kernel_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    out, (count, channels) = _shapes_blocks(x, rows, sizes), x.shape[-2:]
    call_kernel(
        "take", x.shape[:-2].numel(), count, channels, rows.shape[0], x.contiguous(), rows.contiguous(), block_args(out)
    )
    return out


def _shapes(x: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-2], rows.shape[0], x.shape[-1])


def _shapes_blocks(x: Tensor, rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-2], size, x.shape[-1]) for size in sizes]


def _kernel_innermost(x: Tensor) -> Tensor:
    out, (sets, samples, channels) = _shapes_innermost(x), x.shape[:3]
    call_kernel("innermost", sets, samples, channels, x.shape[3:].numel(), x.contiguous(), out)
    return out


def _shapes_innermost(x: Tensor) -> Tensor:
    sets, samples, channels, height, width = x.shape
    return x.new_empty(samples, height, width, sets, channels)


_take = operator("take(Tensor x, Tensor rows) -> Tensor", _kernel, _shapes)
_deal = operator("deal(Tensor x, Tensor rows, SymInt[] sizes) -> Tensor[]", _kernel_blocks, _shapes_blocks)
_innermost = operator("innermost(Tensor x) -> Tensor", _kernel_innermost, _shapes_innermost)


def _torch_take(x: Tensor, rows: Tensor) -> Tensor:
    return x.flatten(0, -3).index_select(1, rows).view(*x.shape[:-2], -1, x.shape[-1])  # three axes: far faster


def _torch_innermost(x: Tensor) -> Tensor:
    return x.permute(1, 3, 4, 0, 2).contiguous()
