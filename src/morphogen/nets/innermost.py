"""Activations `[B, H, W, R, C]`, channels innermost: made of images, and pooled."""

from torch import Tensor

from morphogen import kernels
from morphogen.kernels.native import AutogradFunction


def images_innermost(x: Tensor) -> Tensor:
    """Images as layers take them.  x [E, B, C, H, W], or [B, C, H, W] that all see -> [B, H, W, E or 1, C]."""
    return kernels.channels_innermost(x if x.dim() == 5 else x.unsqueeze(0))


class _Pool(AutogradFunction):
    """Max pooling."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return kernels.pool(x)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.size = inputs[0].shape[1:3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad: Tensor, _: None) -> Tensor:
        return kernels.pool_backward(grad.contiguous(), *ctx.saved_tensors, ctx.size)


def max_pool2d(x: Tensor) -> Tensor:
    """Max pooling 2x2.  x [B, H, W, R, C] -> [B, H // 2, W // 2, R, C]."""
    return _Pool.apply(x)[0]
