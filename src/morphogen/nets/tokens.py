"""Layers on the tokens of stacked language models.  Rows = networks, outermost: [R, B, n, d]."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.kernels import statistics_dtype
from morphogen.state import rng

_LANES = 2**27  # random numbers of a place of dropout


def rows_outermost(x: Tensor) -> Tensor:
    """Return features with the axis of networks first.  x [B, n, R, d] -> [R, B, n, d], a view."""
    return x.permute(2, 0, 1, 3)


def rows_innermost(x: Tensor) -> Tensor:
    """Return the inverse of `rows_outermost`.  x [R, B, n, d] -> [B, n, R, d], a view."""
    return x.permute(1, 2, 0, 3)


class Dropout(NamedTuple):
    """Dropout in a pass of training: random streams and the share that is dropped."""

    streams: Tensor  # int64 [R, 5]
    share: float

    def __call__(self, x: Tensor, place: int) -> Tensor:
        """Drop values and scale the others up.  x [R, ...]; place: number of this call in the pass."""
        words = rng.random_bits(self.streams, x[0].numel(), first=place * _LANES)
        kept = (words >= round(self.share * 2**32)).to(x.dtype)
        return x * (kept / (1 - self.share)).view(x.shape)


def running_mean(x: Tensor) -> Tensor:
    """Mean of every token and those before it, added up in float32 at least.  x [R, B, n, d] -> [R, B, n, d]."""
    tokens = x.shape[2]
    dtype = statistics_dtype(x.dtype)
    count = torch.arange(1, tokens + 1, device=x.device, dtype=dtype)
    shares = torch.ones(tokens, tokens, device=x.device, dtype=dtype).tril() / count.unsqueeze(-1)
    flat = x.flatten(0, 1).to(dtype)  # a product, since running sums on a GPU have no fixed order
    return torch.bmm(shares.expand(flat.shape[0], -1, -1), flat).view(x.shape).to(x.dtype)
