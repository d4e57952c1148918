"""Host and seeds under a plan: one pass over all networks, each blueprint once over exactly the rows that hold it."""

from typing import NamedTuple

from torch import Tensor

from morphogen.kernels import deal, take
from morphogen.nets.blend_slots import Deltas, Gates, blend
from morphogen.nets.hosts import cnn
from morphogen.nets.innermost import innermost, max_pool2d
from morphogen.nets.net import Net
from morphogen.nets.plan import Crew
from morphogen.nets.seeds import cnn as seeds
from morphogen.nets.sites import Grown, Site
from morphogen.vocab.slot import POST_POOL, PRE_POOL


class Growth(NamedTuple):
    """Everything that runs beside the host, per slot in slot order; None where nothing runs."""

    crews: tuple[Crew, ...]
    sites: tuple[Site | None, ...]
    grown: tuple[Grown | None, ...]


def forward(images: Tensor, rows: cnn.Rows, growth: Growth, *, net: Net) -> Tensor:
    """Logits of every row.

    Shapes: images [E, B, C, H, W], or [B, C, H, W] seen by all rows -> [R, B, classes], R = rows at the end.
    """
    places = {(slot.block, slot.surface): s for s, slot in enumerate(net.slots)}
    h = innermost(images)
    for i in range(net.host.blocks):
        h, pooled = cnn.block(i, h, rows, net.host), i < net.host.pools
        h, rows = _visit(h, rows, growth, places.get((i, PRE_POOL)), pooled=pooled)
        if pooled:
            h, rows = _visit(h, rows, growth, places.get((i, POST_POOL)))
    return cnn.head(h, rows)


def _visit(
    h: Tensor, rows: cnn.Rows, growth: Growth, s: int | None, *, pooled: bool = False
) -> tuple[Tensor, cnn.Rows]:
    """Features, pooled or not, and rows after a place that may hold slot s."""
    site, grown = (None, None) if s is None else (growth.sites[s], growth.grown[s])
    if s is None or site is None or grown is None:
        return max_pool2d(h) if pooled else h, rows
    return _meet(h, rows, growth.crews[s], (site, grown), pooled=pooled)


def _meet(h: Tensor, rows: cnn.Rows, crew: Crew, there: tuple[Site, Grown], *, pooled: bool) -> tuple[Tensor, cnn.Rows]:
    """Features after a slot, pooled or not, and the rows that they belong to."""
    site, grown = there
    if site.children is not None:
        h, rows = take(h, site.children), rows._replace(env=site.row_env)
    parts = {group.blueprint: own for group, own in zip(crew.groups, grown.seeds, strict=True)}
    sizes = seeds.fed(parts)
    # No seed sends a gradient back through its input.
    seen = deal(h.detach(), site.fed, [*sizes, crew.gates] if crew.gates else sizes)
    gates = Gates(seeds.gate(grown.gates, seen[-1].mean((1, 2))), site.gated) if crew.gates else None
    deltas = Deltas(seeds.deltas(parts, seen[: len(sizes)]), crew.multiplied)
    return blend(h, deltas, site.mix, gates, pooled=pooled), rows
