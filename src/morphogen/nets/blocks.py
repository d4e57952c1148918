"""The parameters of everything that runs beside the hosts, as one flat buffer: per slot its groups, then its gates.

A group is a block of equal rows, and so are the gates of a slot; the buffer holds one block after the other, leaf by
leaf.  So the optimiser is a few operations on one tensor, whatever runs, and a leaf is a part of the buffer as it lies
in memory.  A gate belongs to its seed.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.kernels.native import AutogradFunction
from morphogen.nets.layout import ParamLayout
from morphogen.nets.net import Net
from morphogen.nets.plan import SlotPlan
from morphogen.nets.sites import SlotIndex, SlotParams, slot_layouts
from morphogen.rules.health import Gauge


class ParamIndex(NamedTuple):
    """Whose the elements of the buffer are.  N elements in L parameter tensors; those of padded rows are nobody's."""

    tensor: Tensor  # int64 [N], the tensor that an element belongs to
    owner: Tensor  # int64 [L], env * S + slot of a tensor; env = E where padded
    real: Tensor  # bool [N], not padded


def flatten_params(params: Iterable[SlotParams | None], like: Tensor) -> Tensor:
    """All blocks as one buffer.  -> [N], in dtype and device of `like`."""
    blocks = [block for rows in params if rows is not None for block in (*rows.seeds, rows.gates)]
    leaves = [leaf.flatten() for block in blocks for leaf in block.values()]
    return torch.cat(leaves) if leaves else like.new_zeros(0)


def split_params(buffer: Tensor, crews: tuple[SlotPlan, ...], *, net: Net) -> tuple[SlotParams | None, ...]:
    """The inverse of `flat`, per slot; None where nothing runs."""
    kinds = block_layouts(crews, net=net)
    shapes = tuple((rows, *leaf.shape) for slot in kinds for rows, kind in slot for leaf in kind.leaves)
    pieces = iter(_SplitViews.apply(buffer, shapes) if shapes else ())
    found = [tuple({leaf.name: next(pieces) for leaf in kind.leaves} for _, kind in slot) for slot in kinds]
    return tuple(SlotParams(blocks[:-1], blocks[-1]) if blocks else None for blocks in found)


class _SplitViews(AutogradFunction):
    """A buffer as views of given shapes: one node of the graph for all of them."""

    @staticmethod
    def forward(buffer: Tensor, shapes: tuple[tuple[int, ...], ...]) -> tuple[Tensor, ...]:
        pieces = buffer.split([math.prod(shape) for shape in shapes])
        return tuple(piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, None]:
        return torch.cat([grad.flatten() for grad in grads]), None


def block_layouts(crews: tuple[SlotPlan, ...], *, net: Net) -> tuple[tuple[tuple[int, ParamLayout], ...], ...]:
    """Rows and layout of every block, per slot; nothing where nothing runs."""
    found = []
    for crew, slot in zip(crews, net.slots, strict=True):
        sizes = (*(group.size for group in crew.groups), crew.gates)
        pairs = zip(sizes, slot_layouts(crew, slot.channels), strict=True)
        found.append(tuple(pairs) if crew.groups else ())
    return tuple(found)


def build_param_index(
    crews: tuple[SlotPlan, ...], sites: tuple[SlotIndex | None, ...], envs: int, *, net: Net
) -> ParamIndex | None:
    """Whose the elements are; None where nothing runs."""
    slots, pairs = len(net.slots), []
    for s, (site, kinds) in enumerate(zip(sites, block_layouts(crews, net=net), strict=True)):
        homes = () if site is None else (*site.target_env, site.gate_target_env)
        blocks = zip(homes, kinds, strict=True)
        pairs += [(home * slots + s, leaf.size) for home, (_, kind) in blocks for leaf in kind.leaves]
    if not pairs:
        return None
    owner = torch.cat([owner for owner, _ in pairs])
    parts = torch.arange(owner.shape[0], device=owner.device).split([owner.shape[0] for owner, _ in pairs])
    sizes = [size for _, size in pairs]
    tensor = torch.cat([own.repeat_interleave(size) for own, size in zip(parts, sizes, strict=True)])
    return ParamIndex(tensor, owner, (owner < envs * slots).index_select(0, tensor))


def grad_stats(grad: Tensor, index: ParamIndex, like: Tensor, *, vanishing: float, exploding: float) -> Gauge:
    """Norms of the gradients of all seeds, and what is wrong with them.  push [N]; like float [E, S]."""
    squares = grad.new_zeros(index.owner.shape).index_add(0, index.tensor, grad.square())
    norms = squares.sqrt()
    flags = (norms < vanishing, ~(norms <= exploding), torch.ones_like(norms, dtype=torch.bool))
    columns = torch.stack((squares, *(flag.to(norms.dtype) for flag in flags)), dim=-1)
    envs, slots = like.shape
    sums = norms.new_zeros((envs + 1) * slots, 4).index_add(0, index.owner, columns)
    square, *counts = sums.view(envs + 1, slots, 4)[:envs].unbind(-1)
    return Gauge(square.sqrt(), *counts)


def mask_padding(grad: Tensor, index: ParamIndex) -> Tensor:
    """The gradient, exactly 0 where it is nobody's.  push [N]."""
    return torch.where(index.real, grad, 0.0)


def expand_to_params(values: Tensor, index: ParamIndex) -> Tensor:
    """Values of every seed, for the elements of the buffer; -1 where they are nobody's.  values [E, S] -> [N]."""
    own = F.pad(values, (0, 0, 0, 1), value=-1.0).flatten()
    return own.index_select(0, index.owner).index_select(0, index.tensor)
