"""Host and seeds under a plan: one pass over all networks, each blueprint once over exactly the rows that hold it."""

from typing import NamedTuple

from torch import Tensor

from morphogen.kernels import take_row_blocks, take_rows
from morphogen.nets.blend_slots import SeedDeltas, SeedGates, blend
from morphogen.nets.hosts import cnn
from morphogen.nets.innermost import images_innermost, max_pool2d
from morphogen.nets.net import Net
from morphogen.nets.plan import SlotPlan
from morphogen.nets.seeds import cnn as seeds
from morphogen.nets.sites import SlotIndex, SlotParams
from morphogen.vocab.slot import POST_POOL, PRE_POOL


class SlotSeeds(NamedTuple):
    """Everything that runs beside the host, per slot in slot order; None where nothing runs."""

    plans: tuple[SlotPlan, ...]
    indices: tuple[SlotIndex | None, ...]
    params: tuple[SlotParams | None, ...]


def forward(images: Tensor, rows: cnn.HostRows, slot_seeds: SlotSeeds, *, net: Net) -> Tensor:
    """Logits of every row.

    Shapes: images [E, B, C, H, W], or [B, C, H, W] seen by all rows -> [R, B, classes], R = rows at the end.
    """
    places = {(slot.block, slot.surface): s for s, slot in enumerate(net.slots)}
    h = images_innermost(images)
    for i in range(net.host.blocks):
        h, pooled = cnn.block(i, h, rows, net.host), i < net.host.pools
        h, rows = _apply_if_slot(h, rows, slot_seeds, places.get((i, PRE_POOL)), pooled=pooled)
        if pooled:
            h, rows = _apply_if_slot(h, rows, slot_seeds, places.get((i, POST_POOL)))
    return cnn.head(h, rows)


def _apply_if_slot(
    h: Tensor, rows: cnn.HostRows, slot_seeds: SlotSeeds, s: int | None, *, pooled: bool = False
) -> tuple[Tensor, cnn.HostRows]:
    """Features, pooled or not, and rows after a place that may hold slot s."""
    site, grown = (None, None) if s is None else (slot_seeds.indices[s], slot_seeds.params[s])
    if s is None or site is None or grown is None:
        return max_pool2d(h) if pooled else h, rows
    return _apply_slot(h, rows, slot_seeds.plans[s], (site, grown), pooled=pooled)


def _apply_slot(
    h: Tensor, rows: cnn.HostRows, plan: SlotPlan, slot: tuple[SlotIndex, SlotParams], *, pooled: bool
) -> tuple[Tensor, cnn.HostRows]:
    """Features after a slot, pooled or not, and the rows that they belong to."""
    site, grown = slot
    if site.parent_row is not None:
        h, rows = take_rows(h, site.parent_row), rows._replace(env=site.row_env)
    parts = {group.blueprint: own for group, own in zip(plan.groups, grown.seeds, strict=True)}
    sizes = seeds.input_sizes(parts)
    # No seed sends a gradient back through its input.
    seen = take_row_blocks(h.detach(), site.input_rows, [*sizes, plan.gates] if plan.gates else sizes)
    gates = (
        SeedGates(seeds.gate_openness(grown.gates, seen[-1].mean((1, 2))), site.gate_position) if plan.gates else None
    )
    deltas = SeedDeltas(seeds.seed_deltas(parts, seen[: len(sizes)]), plan.multiplied_spans)
    return blend(h, deltas, site.mix, gates, pooled=pooled), rows
