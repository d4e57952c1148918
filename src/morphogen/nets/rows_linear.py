"""Linear layer on features of stacked networks, for hosts and blueprints from outside."""

import torch
from torch import Tensor

from morphogen.nets.ops import linear
from morphogen.nets.sequences import spread


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear layer on features, a layer per row.

    Shapes: x [B, ..., R, I], or [B, ..., 1, I] shared by all rows; weight [R, O, I], bias [R, O] (None = 0)
    -> [B, ..., R, O].

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> x = torch.ones(8, 4, 4, 1, 3)  # 8 images of 4 x 4 pixels with 3 channels, shared by 5 networks
        >>> mg.nets.rows_linear(x, torch.ones(5, 2, 3)).shape
        torch.Size([8, 4, 4, 5, 2])
    """
    rows, outputs, inputs = weight.shape
    flat = x.expand(*x.shape[:-2], rows, inputs).reshape(-1, rows, inputs).transpose(0, 1)
    if bias is None:
        out = linear(flat, weight)
    else:
        out = torch.baddbmm(spread(bias, flat.shape[1]), flat, weight.transpose(1, 2))
    return out.transpose(0, 1).reshape(*x.shape[:-2], rows, outputs)
