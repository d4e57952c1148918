"""A buffer as views of given shapes."""

from typing import Any

import torch
from torch import Tensor

from morphogen.compat import apply_function, flatten_tensors


def split_views(
    buffer: Tensor, sizes: list[int], shapes: list[tuple[int, ...]]
) -> tuple[Tensor, ...]:
    """Return consecutive parts of a buffer [N] in given shapes: one node of the graph for all of
    them.
    """
    return apply_function(_SplitViews, buffer, sizes, shapes) if shapes else ()


class _SplitViews(torch.autograd.Function):
    """Views, whose gradients are copied into one buffer."""

    @staticmethod
    def forward(
        buffer: Tensor, sizes: list[int], shapes: list[tuple[int, ...]]
    ) -> tuple[Tensor, ...]:
        parts = buffer.split_with_sizes(sizes)
        return tuple([part.view(shape) for part, shape in zip(parts, shapes, strict=True)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return flatten_tensors(grads), None, None
