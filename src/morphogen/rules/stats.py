"""Means and variances over the entries that count."""

import torch
from torch import Tensor


def masked_moments(x: Tensor, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, population variance and number of the entries under a mask; 0 without any.  x, where bool [...] -> 0-d."""
    count = where.sum()
    total = count.clamp_min(1).to(x.dtype)
    inside = torch.where(where, x, 0.0)
    mean = inside.sum() / total
    spread = torch.where(where, inside - mean, 0.0)
    return mean, spread.square().sum() / total, count
