"""Choosing rows."""

from torch import Tensor

from morphogen.kernels.native import call, fits, operator


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Chosen rows, in their order.  x [B, ..., R, C], rows int64 [N] -> [B, ..., N, C]."""
    return (_take if fits(x) else _plain)(x, rows)


def _kernel(x: Tensor, rows: Tensor) -> Tensor:
    out, (count, channels) = _shapes(x, rows), x.shape[-2:]
    call("take", x.shape[:-2].numel(), count, channels, rows.shape[0], x.contiguous(), rows.contiguous(), out)
    return out


def _shapes(x: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-2], rows.shape[0], x.shape[-1])


_take = operator("take(Tensor x, Tensor rows) -> Tensor", _kernel, _shapes)


def _plain(x: Tensor, rows: Tensor) -> Tensor:
    return x.flatten(0, -3).index_select(1, rows).view(*x.shape[:-2], -1, x.shape[-1])  # three axes: far faster
