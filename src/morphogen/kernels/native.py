"""The compiled extension: loading, calling convention, operators of torch, and the axes of
activations.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor


def _load_extension() -> Any:
    """Import the extension; None where the package was installed without a C compiler."""
    try:
        return importlib.import_module("morphogen.kernels._native")
    except ImportError:
        return None


_native = _load_extension()
# an extension that was compiled earlier takes other arguments
AVAILABLE = getattr(_native, "VERSION", None) == 3
# the processor has the instructions of the convolution kernels
CAN_CONVOLVE = AVAILABLE and _native.convolves()
_DTYPES = (torch.float32, torch.int64, torch.uint8)
_LIBRARY = torch.library.Library("morphogen", "FRAGMENT")
Call = Callable[..., object]  # way to run a kernel: function of its name and arguments
# by operator: function of a `Call` and the operator's arguments that returns the results
KERNELS: dict[Any, Callable[..., Any]] = {}


class Function(torch.autograd.Function):
    """Function with its own gradient; results after the first serve the gradient alone."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the tensors among the arguments, then the results after the first; `ctx.settings`
        are the other arguments.
        """
        results = output[1:] if isinstance(output, tuple) else ()
        tensors = [arg for arg in inputs if arg is None or isinstance(arg, Tensor)]
        ctx.settings = [arg for arg in inputs if arg is not None and not isinstance(arg, Tensor)]
        if results:  # the compiler expects several results where this is called
            ctx.mark_non_differentiable(*results)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *results)


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums over features: their dtype, at least float32."""
    return dtype if dtype.itemsize >= torch.float32.itemsize else torch.float32


def operator(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate an operator of torch, visible to modes and opaque to the compiler.

    The function takes a `Call` before the arguments of the schema, which is in torch's notation.
    It allocates the results, and fills them by that call.  The compiler runs it without kernels, to
    see shapes.
    """
    return partial(_register, schema)


def _register(schema: str, run: Callable[..., Any]) -> Callable[..., Any]:
    name = _LIBRARY.define(schema).split("(")[0]
    _LIBRARY.impl(name, partial(run, call_kernel), "CPU")
    torch.library.register_fake(f"morphogen::{name}", partial(run, _skip_kernel), lib=_LIBRARY)
    registered = getattr(torch.ops.morphogen, name).default
    KERNELS[registered] = run
    return registered


def compiled_kernel(name: str) -> Callable:
    """Return the compiled function of a kernel."""
    return getattr(_native, name)


def call_kernel(name: str, *args: Any) -> None:
    """Run a kernel; tensors, also those in tuples, are passed as addresses, None as 0."""
    compiled_kernel(name)(*(to_kernel_arg(arg) for arg in args))


def _skip_kernel(name: str, *args: Any) -> None:
    """Leave results empty."""


def to_kernel_arg(arg: Any) -> Any:
    """Return an argument in the form of kernels: the address of a tensor, 0 for None."""
    if isinstance(arg, tuple):
        return tuple(to_kernel_arg(item) for item in arg)
    return _address(arg) if isinstance(arg, Tensor) else 0 if arg is None else arg


def _address(x: Tensor) -> int:
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"dtype of a kernel argument: expected one of {', '.join(map(str, _DTYPES))}, "
            f"got {x.dtype}"
        )
    return x.data_ptr()


def make_contiguous(x: Tensor | None) -> Tensor | None:
    """Return the tensor in contiguous memory; None stays None."""
    return None if x is None else x.contiguous()


def make_evenly_strided(x: Tensor) -> Tensor:
    """Return activations with contiguous pixels at an even distance; a slice of rows is not copied.
    x [..., R, C].
    """
    strides = x.stride()
    axes = zip(strides[:-3], x.shape[1:-2], strides[1:-2], strict=True)
    even = (
        strides[-1] == 1
        and strides[-2] == x.shape[-1]
        and all(outer == size * inner for outer, size, inner in axes)
    )
    return x if even else x.contiguous()


def block_args(blocks: Sequence[Tensor]) -> tuple[Tensor | int, ...]:
    """Return arguments of kernels for blocks: each block, its networks, and the floats between its
    pixels.
    """
    return tuple(x for block in blocks for x in (block, block.shape[-2], block.stride(-3)))


def to_images(x: Tensor) -> Tensor:
    """View activations in the order of axes of torch.  [B, H, W, R, C] -> [B, R * C, H, W]."""
    return x.flatten(3).permute(0, 3, 1, 2)


def to_activations(x: Tensor, rows: int) -> Tensor:
    """Return images in the order of axes of activations.  [B, R * C, H, W] -> [B, H, W, R, C]."""
    samples, channels, height, width = x.shape
    return x.permute(0, 2, 3, 1).contiguous().view(samples, height, width, rows, channels // rows)
