"""Convolutions of stacked networks that keep height and width."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.compat import apply_function
from morphogen.kernels import Form, form_of, has_channel_kernel
from morphogen.kernels.linear import place_linear
from morphogen.kernels.native import (
    Call,
    Function,
    make_evenly_strided,
    operator,
    to_activations,
    to_images,
)
from morphogen.kernels.threads import one_thread


def stacked_conv(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve and keep height and width.

    Shapes: x [B, H, W, R, I], or [B, H, W, 1, I] shared by all rows; weight [R, O, I, k, k], k odd
    -> [B, H, W, R, O]. With as many inputs as outputs and a weight [R, O, 1, k, k] the convolution
    is depthwise.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> image = torch.ones(
        ...     1, 4, 4, 1, 1
        ... )  # shared by two networks, which sum and average 3 x 3 pixels
        >>> weight = torch.stack((torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3) / 9))
        >>> mg.hosts.stacked_conv(image, weight)[0, 1, 1].flatten().round(decimals=3).tolist()
        [9.0, 1.0]
    """
    form = form_of("conv", x, weight)
    if form is Form.MATRIX:
        return _matrix_conv(x, weight)
    if form in (Form.KERNEL, Form.ORDERED):
        return apply_function(_Conv, x, weight, form)
    return _torch_conv(x, weight)


def _matrix_conv(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve by one matrix product for all pixels of a network; depthwise by a product and a
    sum.
    """
    kernel = weight.shape[-1]
    if kernel > 1:
        padded = F.pad(x, (0, 0, 0, 0, *(kernel // 2,) * 4))
        x = padded.unfold(1, kernel, 1).unfold(2, kernel, 1)  # [B, H, W, R, I, k, k]
    if kernel > 1 and weight.shape[2] < x.shape[4]:
        return (x * weight.squeeze(2)).sum((-2, -1))
    inputs = x.expand(*x.shape[:3], weight.shape[0], *x.shape[4:]).flatten(4)
    out = place_linear(inputs.flatten(0, 2).transpose(0, 1), weight.flatten(2))
    return out.transpose(0, 1).view(*inputs.shape[:4], -1)


class _Conv(Function):
    """A convolution whose bits depend neither on R nor on the number of threads."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, form: Form) -> Tensor:
        return _conv(x, weight) if form is Form.KERNEL else _ordered_conv(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        needs: bool = ctx.needs_input_grad[0]
        [form] = ctx.settings
        gradients = _kernel_gradients if form is Form.KERNEL else _ordered_gradients
        x_grad, weight_grad = gradients(grads[0], x, weight, needs)
        return x_grad if needs else None, weight_grad, None


def _kernel_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, needs: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x, empty unless it `needs` one, and weight."""
    if needs and not has_channel_kernel(x.shape[-1]):
        rows = weight.shape[0]
        kernel = weight.shape[-1]
        images = torch.conv_transpose2d(
            to_images(grad), weight.flatten(0, 1), padding=kernel // 2, groups=rows
        )
        return to_activations(images, rows), _conv_backward(grad, x, weight, False)[1]
    return _conv_backward(grad, x, weight, needs)


def _ordered_conv(x: Tensor, weight: Tensor) -> Tensor:
    if _is_depthwise(x, weight):  # an output has the products of one kernel, which one thread adds
        return _torch_conv(x, weight)
    with one_thread(x.device):  # threads of torch add the parts of each
        if not _needs_company(x, weight):
            return _torch_conv(x, weight)
        rows = weight.shape[0]
        return _torch_conv(_twice(x), _twice(weight, 0))[..., :rows, :].contiguous()


def _needs_company(x: Tensor, weight: Tensor) -> bool:
    """Return True where torch computes these rows in another order than more of them: a single
    group, or three of one channel each, which it takes for colours.
    """
    few = weight.shape[0] == 1 or x.shape[3:] == (3, 1)
    return few and not _is_depthwise(x, weight)


def _twice(part: Tensor, axis: int = -2) -> Tensor:
    return torch.cat((part, part), axis)


def _ordered_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, needs: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x, empty unless it `needs` one, and weight."""
    if _needs_company(x, weight):
        rows = weight.shape[0]
        both = _ordered_gradients(_twice(grad), _twice(x), _twice(weight, 0), needs)
        return both[0][..., :rows, :] if needs else both[0], both[1][:rows]
    images, flat = _to_torch(x, weight)
    kernel = weight.shape[-1]
    sizes = (1, 1), (kernel // 2,) * 2, (1, 1), False, (0, 0), images.shape[1] // flat.shape[1]
    with one_thread(grad.device):
        x_grad, flat_grad, _ = torch.ops.aten.convolution_backward(
            to_images(grad), images, flat, None, *sizes, (needs, True, False)
        )
    x_grad = to_activations(x_grad, x.shape[3]) if needs else x.new_empty(0)
    return x_grad, flat_grad.view(weight.shape)


def _torch_conv(x: Tensor, weight: Tensor) -> Tensor:
    images, flat = _to_torch(x, weight)
    groups = images.shape[1] // flat.shape[1]
    out = F.conv2d(images, flat, padding=weight.shape[-1] // 2, groups=groups)
    return to_activations(out, weight.shape[0])


def _to_torch(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return images and weights of a grouped convolution.  -> [B, R * I, H, W], [R * O, I, k,
    k].
    """
    return to_images(x).contiguous(memory_format=torch.channels_last), weight.flatten(
        0, 1
    ).contiguous()


def _is_depthwise(x: Tensor, weight: Tensor) -> bool:
    """Return True where every channel is a group of its own, of several in a network."""
    return weight.shape[2] < x.shape[-1]


@operator("conv(Tensor x, Tensor weight) -> Tensor")
def _conv(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    x = make_evenly_strided(x)
    out = x.new_empty(*x.shape[:-1], weight.shape[1])
    call("conv", *_sizes(x, weight), x, weight.contiguous(), out, None, None, None)
    return out


@operator(
    "conv_backward(Tensor grad, Tensor x, Tensor weight, bool needs_input_grad) -> (Tensor, Tensor)"
)
def _conv_backward(
    call: Call, grad: Tensor, x: Tensor, weight: Tensor, needs: bool
) -> tuple[Tensor, Tensor]:
    x = make_evenly_strided(x)
    x_grad = x.new_empty(x.shape if needs else 0)
    weight_grad = weight.new_empty(weight.shape)
    inputs = x, weight.contiguous(), None, grad.contiguous()
    outputs = x_grad if needs else None, weight_grad
    call("conv_backward", *_sizes(x, weight), *inputs, *outputs)
    return x_grad, weight_grad


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, ...]:
    return *x.shape, weight.shape[1], weight.shape[-1], x.stride(2)
