"""Philox 4x32-10, counter-based random words (Salmon et al., Parallel random numbers: as easy as 1,
2, 3, 2011).
"""

from functools import partial

import torch
from torch import Tensor

_M0 = 0xD2511F53
_M1 = 0xCD9E8D57
_W0 = 0x9E3779B9
_W1 = 0xBB67AE85
_MASK = 0xFFFFFFFF
_ROUNDS = 10


def philox(counter: Tensor, key: Tensor) -> Tensor:
    """Return random words.  counter int64 [..., 4], key int64 [..., 2], words in 0..2**32-1 ->
    int64 [..., 4].

    Ten rounds on pairs of words, five launches each.  Words grow beyond 32 bits; only factors are
    masked.
    """
    even = counter[..., ::2]
    odd = counter[..., 1::2]
    # numbers in line: no copy from the host
    ramp = partial(torch.arange, dtype=torch.int64, device=counter.device)
    numbers = ramp(_ROUNDS).unsqueeze(-1)
    keys = key.unsqueeze(-2) + numbers * ramp(_W0, 2 * _W1 - _W0, _W1 - _W0)  # [..., rounds, 2]
    # The middle two of these four numbers are M1 and M0, and the middle of four products is (c2 M1,
    # c0 M0), row by row:
    # thus the exchange of the pair is a view.
    factors = torch.unflatten(ramp(2 * _M1 - _M0, 2 * _M0 - _M1 + 1, _M0 - _M1), 0, (2, 2))
    for now in keys.unbind(-2):
        # wrapped: int64 holds the right 64 bits
        product = (even.unsqueeze(-2) * factors).flatten(-2)[..., 1:3]
        even = ((product >> 32) ^ odd ^ now) & _MASK
        odd = product
    return torch.stack((even, odd & _MASK), dim=-1).flatten(-2)
