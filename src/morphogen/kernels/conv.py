"""Convolutions of stacked networks that keep height and width."""

import enum
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from morphogen.kernels.native import (
    CAN_CONVOLVE,
    call_kernel,
    has_kernel,
    make_contiguous,
    make_evenly_strided,
    operator,
    to_activations,
    to_images,
)
from morphogen.kernels.threads import one_thread

_SIDE = 4  # pixels that the kernel computes together, in either direction
_SHARED_WIDTHS, _VECTOR_WIDTH = (4, 8), 16  # output channels that share a vector of the kernel, or fill one


class Form(enum.Enum):
    """Implementation of a convolution."""

    USUAL = "usual"  # torch, axes in memory in torch's order
    INNERMOST = "innermost"  # torch, channels innermost
    KERNEL = "kernel"  # compiled kernel
    MATRIX = "matrix"  # torch, a product of matrices of pixels and weights


_LAYOUTS = {Form.USUAL: torch.contiguous_format, Form.INNERMOST: torch.channels_last}  # of convolutions by torch


def form_of(x: Tensor, weight: Tensor) -> Form:
    """Return the form by device and shapes (`morphogen bench --explain`).

    Shapes: x [B, H, W, R, I], weight [R, O, I, k, k].
    """
    rows, outputs, inputs, kernel = weight.shape[:4]
    if has_kernel(x):
        sides = all(side % _SIDE == 0 for side in x.shape[1:3])
        known = sides and kernel % 2 == 1 and _has_channel_kernel(outputs) and x.shape[3:] == (rows, inputs)
        return Form.KERNEL if CAN_CONVOLVE and known else Form.INNERMOST
    # Grouped convolutions of a GPU are slow for many networks of few channels; on a CPU unfolding is.
    return Form.MATRIX if inputs == x.shape[-1] and (kernel == 1 or x.is_cuda) else Form.INNERMOST


def conv(x: Tensor, weight: Tensor, *, form: Form = Form.KERNEL) -> Tensor:
    """Convolve in any form but `MATRIX`, with bits that depend neither on R nor on the number of threads.

    Shapes: x [B, H, W, R or 1, I], weight [R, O, I, k, k] -> [B, H, W, R, O].
    Raises: ValueError for `KERNEL` where `form_of` is another form.
    """
    if form is Form.KERNEL:
        return _conv(x, weight)
    if _is_depthwise(x, weight):  # an output has the products of one kernel, which one thread adds
        return torch_conv(x, weight, form)
    if weight.shape[0] == 1:  # torch computes a single group in another order than several
        return conv(_repeat_row(x), torch.cat((weight, weight)), form=form)[..., :1, :].contiguous()
    with one_thread(x.device):  # threads of torch add the parts of each
        return torch_conv(x, weight, form)


def torch_conv(x: Tensor, weight: Tensor, form: Form) -> Tensor:
    """Convolve by torch, with its gradient.  Shapes as of `conv`."""
    images, flat = _to_torch(x, weight, form)
    out = F.conv2d(images, flat, padding=weight.shape[-1] // 2, groups=images.shape[1] // flat.shape[1])
    return to_activations(out, weight.shape[0])


def conv_backward(
    grad: Tensor, x: Tensor, weight: Tensor, *, needs_input_grad: bool, form: Form = Form.KERNEL
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (empty unless `needs_input_grad`) and weight.  grad [B, H, W, R, O]."""
    if form is not Form.KERNEL:
        return _torch_backward(grad, x, weight, form, needs_input_grad=needs_input_grad)
    if needs_input_grad and not _has_channel_kernel(x.shape[-1]):
        rows, kernel = weight.shape[0], weight.shape[-1]
        images = torch.conv_transpose2d(to_images(grad), weight.flatten(0, 1), padding=kernel // 2, groups=rows)
        return to_activations(images, rows), _conv_backward(grad, x, weight, False)[1]
    return _conv_backward(grad, x, weight, needs_input_grad)


def _torch_backward(
    grad: Tensor, x: Tensor, weight: Tensor, form: Form, *, needs_input_grad: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of a convolution by torch."""
    if weight.shape[0] == 1 and not _is_depthwise(x, weight):
        both = _repeat_row(grad), _repeat_row(x), torch.cat((weight, weight))
        x_grad, weight_grad = _torch_backward(*both, form, needs_input_grad=needs_input_grad)
        return x_grad[..., :1, :].contiguous() if needs_input_grad else x_grad, weight_grad[:1]
    (images, flat), kernel = _to_torch(x, weight, form), weight.shape[-1]
    sizes = (1, 1), (kernel // 2,) * 2, (1, 1), False, (0, 0), images.shape[1] // flat.shape[1]
    with one_thread(grad.device):
        x_grad, flat_grad, _ = torch.ops.aten.convolution_backward(
            to_images(grad), images, flat, None, *sizes, (needs_input_grad, True, False)
        )
    return to_activations(x_grad, x.shape[3]) if needs_input_grad else x.new_empty(0), flat_grad.view(weight.shape)


def _is_depthwise(x: Tensor, weight: Tensor) -> bool:
    """Return True where every channel is a group of its own, of several in a network."""
    return weight.shape[2] < x.shape[-1]


def _repeat_row(x: Tensor) -> Tensor:
    """Return the activations of one network as those of two.  [B, H, W, 1, C] -> [B, H, W, 2, C]."""
    return torch.cat((x, x), -2)


def _to_torch(x: Tensor, weight: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    """Return images and weights of a grouped convolution.  -> [B, R * I, H, W], [R * O, I, k, k]."""
    return to_images(x).contiguous(memory_format=_LAYOUTS[form]), weight.flatten(0, 1).contiguous()


def _has_channel_kernel(channels: int) -> bool:
    """Return True if the kernel serves this number of output channels."""
    return channels in _SHARED_WIDTHS or channels % _VECTOR_WIDTH == 0


def _kernel(out: Tensor, x: Tensor, weight: Tensor) -> None:
    x = _kernel_input(x, weight)
    call_kernel("conv", *_sizes(x, weight), x, make_contiguous(weight), out, None, None, None)


def _kernel_backward(results: tuple[Tensor, ...], grad: Tensor, x: Tensor, weight: Tensor, needs_input_grad: bool):
    x, (x_grad, weight_grad) = _kernel_input(x, weight, is_backward=needs_input_grad), results
    tensors = x, make_contiguous(weight), None, grad.contiguous(), x_grad if needs_input_grad else None, weight_grad
    call_kernel("conv_backward", *_sizes(x, weight), *tensors)


def _kernel_input(x: Tensor, weight: Tensor, *, is_backward: bool = False) -> Tensor:
    """Return the input in the layout of the kernel.  is_backward: the kernel also computes the gradient of x."""
    if form_of(x, weight) is not Form.KERNEL or (is_backward and not _has_channel_kernel(x.shape[-1])):
        got = f"{tuple(x.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"x, weight: expected shapes that `form_of` maps to KERNEL, got {got}")
    return make_evenly_strided(x)


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, ...]:
    return *x.shape, weight.shape[1], weight.shape[-1], x.stride(2)


def _shapes(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[1])


def _shapes_backward(grad: Tensor, x: Tensor, weight: Tensor, needs_input_grad: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape if needs_input_grad else 0), weight.new_empty(weight.shape)


_conv = operator("conv(Tensor x, Tensor weight) -> Tensor", _kernel, _shapes)
_conv_backward = operator(
    "conv_backward(Tensor grad, Tensor x, Tensor weight, bool needs_input_grad) -> (Tensor, Tensor)",
    _kernel_backward,
    _shapes_backward,
)


@register_flop_formula([torch.ops.morphogen.conv])
def _flops(x: Any, weight: Any, **_: Any) -> int:
    return 2 * math.prod(x[:3]) * math.prod(weight)


@register_flop_formula([torch.ops.morphogen.conv_backward])
def _flops_backward(grad: Any, x: Any, weight: Any, needs_input_grad: bool, **_: Any) -> int:
    return (1 + needs_input_grad) * _flops(x, weight)
