"""Operators over stacked networks: a file each, with its function, torch form, gradient and schema;
C next to it.

For authors of layers: import a function from the file of its operator, as in `from
morphogen.kernels.conv import stacked_conv`.  Callers know nothing of forms.  Every operator has a
form in plain torch, which runs on any device and which the compiler fuses; many have a C kernel for
float32 on a CPU (`kernels/*.c`), which passes over memory once.  Both agree up to rounding.
`form_of` is the one function that decides which form runs.  Without a C compiler the package
installs without kernels, and plain torch computes everything.

- `conv`: convolutions that keep height and width
- `norm`: group and batch normalisation with channel mask, lower limit and scale
- `pool`: max pooling 2x2
- `blend`: seeds blended into the features of their hosts, and pooled
- `sums`: sums in an order that no other network changes, and functions with such a gradient
- `linear`: layers of stacked networks; an extra has others, whose C is here too
- `elementwise`: activations in which no element depends on the number of the others
- `lstm`: the memory of the policy over a rollout, with its gradient by hand
- `philox`: counter-based random words, the base of `state.rng`
- `native`: loading of the extension, the calling convention of kernels, axes

Activations are `[B, H, W, R, C]`: samples, pixels, stacked networks and their channels, which are
innermost.  Loads torch, and of the project only `compat`.
"""

import enum
from collections.abc import Callable

import torch
from torch import Tensor

from morphogen.kernels.native import AVAILABLE, CAN_CONVOLVE, statistics_dtype
from morphogen.kernels.threads import one_thread

__all__ = [
    "AVAILABLE",
    "CAN_CONVOLVE",
    "LIMITS",
    "Form",
    "form_of",
    "one_thread",
    "statistics_dtype",
]

MAX_CHANNELS = 512  # channels of a network, `WIDTH` in kernels.h
_PIECE = 1 << 14  # floats of a piece, as in blend.c
_SHARED_WIDTHS = (4, 8)  # output channels that share a vector of that kernel
_VECTOR_WIDTH = 16  # output channels that fill one


class Form(enum.Enum):
    """Implementation of an operator."""

    KERNEL = "kernel"  # compiled C
    ORDERED = "ordered"  # torch, in an order that neither other networks nor threads change
    TORCH = "torch"  # torch as it is
    MATRIX = "matrix"  # of convolutions: torch, a product of matrices of pixels and weights


def form_of(operator: str, x: Tensor, weight: Tensor | None = None) -> Form:
    """Return the form in which an operator runs on these activations: nothing else decides it.

    Shapes: x [..., C], the operator's first argument; weight [R, O, I, k, k], of a convolution.
    """
    served = (
        AVAILABLE
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[-1] <= MAX_CHANNELS
    )
    if weight is not None:
        return _conv_form(x, weight, served)
    if not served:
        return Form.TORCH
    if operator == "elementwise":  # the compiler computes all elements alike
        return Form.TORCH if torch.compiler.is_compiling() else Form.ORDERED
    limit = LIMITS.get(operator)
    return Form.KERNEL if limit is None or limit(x) else Form.TORCH


def _conv_form(x: Tensor, weight: Tensor, served: bool) -> Form:
    rows, outputs, inputs, kernel = weight.shape[:4]
    if served:
        usual = x.shape[3:] == (rows, inputs) and kernel % 2 == 1 and has_channel_kernel(outputs)
        return Form.KERNEL if CAN_CONVOLVE and usual else Form.ORDERED
    # Grouped convolutions of a GPU are slow for many networks of few channels; unfolding is on a
    # CPU.
    product = inputs == x.shape[-1] and (kernel == 1 or x.is_cuda)
    return Form.MATRIX if product else Form.TORCH


def has_channel_kernel(channels: int) -> bool:
    """Return True if the kernel of convolutions serves this number of output channels."""
    return channels in _SHARED_WIDTHS or channels % _VECTOR_WIDTH == 0


def _can_blend_and_pool(features: Tensor) -> bool:
    _, height, width, rows, channels = features.shape
    return height % 2 == width % 2 == 0 and 4 * rows * channels <= _PIECE


# shapes of the first argument that a kernel serves; an extra adds its own
LIMITS: dict[str, Callable[[Tensor], bool]] = {
    "blend_and_pool": _can_blend_and_pool,
}
