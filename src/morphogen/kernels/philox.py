"""Philox 4x32-10, counter-based random words (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011)."""

import torch
from torch import Tensor

from morphogen.kernels.native import AVAILABLE, call_kernel, operator

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_ROUNDS = 10


def philox(counter: Tensor, key: Tensor) -> Tensor:
    """Return random words.  counter int64 [..., 4], key int64 [..., 2], words in 0..2**32-1 -> int64 [..., 4]."""
    integers = counter.dtype == key.dtype == torch.int64
    return (_philox if AVAILABLE and integers and counter.device.type == "cpu" else _torch_philox)(counter, key)


def _kernel(out: Tensor, counter: Tensor, key: Tensor) -> None:
    key = key.expand(*counter.shape[:-1], 2).contiguous()
    call_kernel("philox", out.numel() // 4, counter.contiguous(), key, out)


_philox = operator(
    "philox(Tensor counter, Tensor key) -> Tensor", _kernel, lambda counter, key: counter.new_empty(counter.shape)
)


def _torch_philox(counter: Tensor, key: Tensor) -> Tensor:
    c0, c1, c2, c3 = counter.unbind(-1)
    k0, k1 = key.unbind(-1)
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _M0, c2 * _M1  # the wrapped int64 product has the right 64 bits
        high0, high1 = (p0 >> 32) & _MASK, (p1 >> 32) & _MASK
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, p1 & _MASK, high0 ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)
