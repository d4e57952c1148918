"""Sums over the middle axis.

Torch adds the columns of a reduction in an order that depends on their number; then the results of a network would
depend on the networks that are stacked beside it.
"""

from torch import Tensor

from morphogen.kernels.native import call_kernel, has_kernel, operator


def column_sums(x: Tensor) -> Tensor:
    """Sum over the second axis; no sum of a kernel depends on other columns.  x [A, N, ..., C] -> [A, ..., C]."""
    return _sums(x) if has_kernel(x) else x.sum(1)


def _kernel(out: Tensor, x: Tensor) -> None:
    call_kernel("sums", *x.shape[:2], x.shape[2:].numel(), x.contiguous(), out)


_sums = operator("sums(Tensor x) -> Tensor", _kernel, lambda x: x.new_empty(x.shape[0], *x.shape[2:]))
