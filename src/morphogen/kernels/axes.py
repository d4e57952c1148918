"""Activations `[B, H, W, R, C]` as torch orders axes, and back."""

from torch import Tensor


def to_images(x: Tensor) -> Tensor:
    """The same memory as torch names its axes.  [B, H, W, R, C] -> [B, R * C, H, W]."""
    return x.flatten(3).permute(0, 3, 1, 2)


def to_activations(x: Tensor, rows: int) -> Tensor:
    """The inverse of `images`.  [B, R * C, H, W] -> [B, H, W, R, C]."""
    samples, channels, height, width = x.shape
    return x.permute(0, 2, 3, 1).contiguous().view(samples, height, width, rows, channels // rows)
