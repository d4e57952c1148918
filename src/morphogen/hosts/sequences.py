"""Layers on the places of sequences, for stacked networks.  Rows = networks, outermost: [R, B, n,
d].
"""

import torch
from torch import Tensor

from morphogen.kernels import statistics_dtype


def rows_outermost(x: Tensor) -> Tensor:
    """Return features with the axis of networks first.  x [B, n, R, d] -> [R, B, n, d], a view."""
    return x.permute(2, 0, 1, 3)


def rows_innermost(x: Tensor) -> Tensor:
    """Return the inverse of `rows_outermost`.  x [R, B, n, d] -> [B, n, R, d], a view."""
    return x.permute(1, 2, 0, 3)


def running_mean(x: Tensor) -> Tensor:
    """Mean of every place and the places before it, added up in float32 at least.  x [R, B, n, d]
    -> [R, B, n, d].
    """
    places = x.shape[2]
    dtype = statistics_dtype(x.dtype)
    count = torch.arange(1, places + 1, device=x.device, dtype=dtype)
    shares = torch.ones(places, places, device=x.device, dtype=dtype).tril() / count.unsqueeze(-1)
    flat = x.flatten(0, 1).to(dtype)  # a product, since running sums on a GPU have no fixed order
    return torch.bmm(shares.expand(flat.shape[0], -1, -1), flat).view(x.shape).to(x.dtype)
