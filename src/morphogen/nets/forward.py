"""Pass through hosts and seeds under a plan: all networks at once, each blueprint once over the rows that hold it."""

from typing import NamedTuple

from torch import Tensor

from morphogen.kernels import take_row_blocks, take_rows
from morphogen.nets import cnn
from morphogen.nets.blend_slots import SeedDeltas, SeedGates, blend
from morphogen.nets.net import Net
from morphogen.nets.ops import images_innermost, max_pool2d
from morphogen.nets.plan import SlotPlan
from morphogen.nets.sites import SlotIndex, SlotParams
from morphogen.vocab.slot import POST_POOL, PRE_POOL


class SlotSeeds(NamedTuple):
    """Everything that runs beside the host, per slot in slot order; None where nothing runs."""

    plans: tuple[SlotPlan, ...]
    indices: tuple[SlotIndex | None, ...]
    params: tuple[SlotParams | None, ...]


def forward(images: Tensor, rows: cnn.HostRows, slot_seeds: SlotSeeds, *, net: Net) -> Tensor:
    """Return the logits of every row.

    Shapes: images [E, B, C, H, W], or [B, C, H, W] shared by all rows -> [R, B, classes], R = rows after the last slot.
    """
    positions = {(slot.block, slot.surface): s for s, slot in enumerate(net.slots)}
    h = images_innermost(images)
    for i in range(net.host.blocks):
        h, pooled = cnn.block(i, h, rows, net.host), i < net.host.pools
        h, rows = _apply_slot(h, rows, slot_seeds, positions.get((i, PRE_POOL)), pooled=pooled)
        if pooled:
            h, rows = _apply_slot(h, rows, slot_seeds, positions.get((i, POST_POOL)))
    return cnn.head(h, rows)


def _apply_slot(
    h: Tensor, rows: cnn.HostRows, slot_seeds: SlotSeeds, s: int | None, *, pooled: bool = False
) -> tuple[Tensor, cnn.HostRows]:
    """Blend the seeds of slot s into the features, if it exists and anything runs, and pool the result if `pooled`."""
    index, params = (None, None) if s is None else (slot_seeds.indices[s], slot_seeds.params[s])
    if s is None or index is None or params is None:
        return max_pool2d(h) if pooled else h, rows
    plan = slot_seeds.plans[s]
    if index.parent_row is not None:
        h, rows = take_rows(h, index.parent_row), rows._replace(env=index.row_env)
    parts = {group.blueprint: leaves for group, leaves in zip(plan.groups, params.seeds, strict=True)}
    sizes = cnn.input_sizes(parts)
    # No seed sends a gradient back through its input.
    inputs = take_row_blocks(h.detach(), index.input_rows, [*sizes, plan.gates] if plan.gates else sizes)
    gates = None
    if plan.gates:
        gates = SeedGates(cnn.gate_openness(params.gates, inputs[-1].mean((1, 2))), index.gate_position)
    deltas = SeedDeltas(cnn.seed_deltas(parts, inputs[: len(sizes)]), plan.multiplied_spans)
    return blend(h, deltas, index.mix, gates, pooled=pooled), rows
