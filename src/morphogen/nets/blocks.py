"""The parameters of everything that runs, as one list of blocks: per slot its groups, then its gates.

The optimiser and the gradient statistics treat a block of gates like a block of seeds; both belong to the seed of their
(env, slot).
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.nets.layout import Layout
from morphogen.nets.net import Net
from morphogen.nets.plan import Crew
from morphogen.nets.seeds import cnn as seeds
from morphogen.nets.sites import Grown, Site
from morphogen.rules.health import Gauge

_WIDEST = 6  # leaves of the largest blueprint


class Owners(NamedTuple):
    """Whose parameters the rows of all blocks are."""

    seed: Tensor  # int64 [R], env * S + slot
    place: Tensor  # int64 [R], the same for seeds; gates come after all seeds, so that no two rows share a place
    present: Tensor  # bool [R, 6], leaf exists
    real: Tensor  # bool [R], not padded; what is padded has its place after all others


def flatten(grown: Iterable[Grown | None]) -> tuple[Tensor, ...]:
    """All blocks, [n, P] each."""
    return tuple(block for rows in grown if rows is not None for block in (*rows.seeds, rows.gates))


def unflatten(blocks: Iterable[Tensor], like: tuple[Grown | None, ...]) -> tuple[Grown | None, ...]:
    """The inverse of `flatten`."""
    source = iter(blocks)
    return tuple(rows and Grown(tuple(next(source) for _ in rows.seeds), next(source)) for rows in like)


def layouts(crews: tuple[Crew, ...], *, net: Net) -> tuple[Layout, ...]:
    """The layout of every block."""
    found: list[Layout] = []
    for crew, slot in zip(crews, net.slots, strict=True):
        own = [seeds.layout(group.blueprint, slot.channels) for group in crew.groups]
        found += [*own, seeds.gate_layout(slot.channels)] if own else []
    return tuple(found)


def owners(crews: tuple[Crew, ...], sites: tuple[Site | None, ...], envs: int, *, net: Net) -> Owners | None:
    """Whose parameters the rows of all blocks are; None where nothing runs."""
    slots = len(net.slots)
    seed, place, present, real = [], [], [], []
    for s, site in enumerate(sites):
        if site is None:
            continue
        seed += [env * slots + s for env in (*site.env, site.gate_env)]
        place += [*(home * slots + s for home in site.home), (site.gate_home + envs) * slots + s]
        real += [home < envs for home in (*site.home, site.gate_home)]
    if not seed:
        return None
    for rows, layout in zip(seed, layouts(crews, net=net), strict=True):
        exists = torch.arange(_WIDEST, device=rows.device) < len(layout.leaves)
        present.append(exists.expand(rows.shape[0], -1))
    taken = torch.cat(real)
    return Owners(torch.cat(seed), torch.where(taken, torch.cat(place), 2 * envs * slots), torch.cat(present), taken)


def silenced(grads: tuple[Tensor, ...], owner: Owners | None) -> tuple[Tensor, ...]:
    """The gradients, exactly 0 in padded rows.  Blocks [n, P]."""
    if owner is None:
        return grads
    real = owner.real.unsqueeze(-1).split([grad.shape[0] for grad in grads])
    return tuple(torch.where(rows, grad, 0.0) for rows, grad in zip(real, grads, strict=True))


def gauge(
    grads: tuple[Tensor, ...],
    kinds: tuple[Layout, ...],
    owner: Owners | None,
    like: Tensor,
    *,
    vanishing: float,
    exploding: float,
) -> Gauge:
    """Norms of the gradients of all seeds and what is wrong with them.  grads: blocks; like float [E, S]."""
    if owner is None:
        return Gauge(*(torch.zeros_like(like) for _ in Gauge._fields))
    rows = [F.pad(kind.norms(grad), (0, _WIDEST - len(kind.leaves))) for grad, kind in zip(grads, kinds, strict=True)]
    norms = torch.cat(rows)
    small, large = (norms < vanishing) & owner.present, ~(norms <= exploding) & owner.present
    columns = [norms.square().sum(-1), *(flags.sum(-1).to(norms.dtype) for flags in (small, large, owner.present))]
    table = norms.new_zeros(2 * like.numel() + 1, 4).index_copy(0, owner.place, torch.stack(columns, dim=-1))
    square, *counts = table[:-1].view(2, *like.shape, 4).sum(0).unbind(-1)
    return Gauge(square.sqrt(), *counts)


def shares(values: Tensor, owner: Owners, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Values of every seed, for the rows of each block.  values [E, S] -> [n] per block."""
    return values.flatten().index_select(0, owner.seed).split([grad.shape[0] for grad in grads])
