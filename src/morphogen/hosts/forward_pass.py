"""Pass through hosts and seeds under a plan: all networks at once, each blueprint once over the
rows that hold it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from morphogen.hosts.cnn_seeds import CnnBlueprint, cnn_deltas
from morphogen.hosts.host_networks import Features, HostRows
from morphogen.hosts.layout import Leaves
from morphogen.hosts.net import Net
from morphogen.hosts.plan import SlotPlan
from morphogen.hosts.seed_module import Modules, gate_openness
from morphogen.hosts.sites import SlotIndex, SlotParams
from morphogen.kernels.blend import blend
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.take import seed_inputs, take_row_blocks, take_rows
from morphogen.state.env import Instance
from morphogen.vocab.blueprint import Blueprint

UNUSED_LOGIT = -1e4  # of a class that is not in use


class SlotSeeds(NamedTuple):
    """Everything that runs alongside the hosts, per slot in slot order; None where nothing runs.
    Input of `forward`.
    """

    plans: tuple[SlotPlan, ...]
    indices: tuple[SlotIndex | None, ...]
    params: tuple[SlotParams | None, ...]


def forward(
    inputs: Tensor, rows: HostRows, used: Tensor, slot_seeds: SlotSeeds, *, net: Net
) -> Tensor:
    """Return the outputs of every row; logits of unused classes are -1e4.

    Shapes: inputs [E, B, *shape], or [B, *shape] shared by all rows; used bool [E, classes], class
    in use -> [R, B, classes], or [R, B, n, classes] of a sequence, in the dtype of the leaves; R =
    rows after the last slot.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> net, (state, _) = env.net, env.reset()
        >>> host, nothing = state.host.params, (None,) * len(net.slots)  # no seeds
        >>> rows = mg.HostRows(
        ...     net.host_layout.split(host), net.networks.masks(state.instance, host), None
        ... )
        >>> seeds = mg.hosts.SlotSeeds(mg.hosts.empty_plan(2, net).train, nothing, nothing)
        >>> used = mg.hosts.used_classes(state.instance, net)
        >>> mg.hosts.forward(
        ...     torch.zeros(5, 1, 8, 8), rows, used, seeds, net=net
        ... ).shape  # 5 images for both hosts
        torch.Size([2, 5, 10])
    """
    h = net.networks.embed(inputs)
    for i, (s, pooled) in enumerate(net.stages):
        h = net.networks.stage(i, h, rows)
        h, rows = _apply_slot(h, rows, slot_seeds, s, net=net, pooled=pooled)
    logits = net.networks.head(h, rows)
    if net.all_classes or net.host.causal or not net.criterion.labelled:  # every output is in use
        return logits
    return logits.masked_fill(~rows.pick(used).unsqueeze(1), UNUSED_LOGIT)


def used_classes(instance: Instance, net: Net) -> Tensor:
    """Return the classes in use.

    Shapes: instance [E] -> bool [E, classes].

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("digits", envs=2, seed=0, instance={"classes": (3, 3)})
        >>> state, _ = env.reset()
        >>> mg.hosts.used_classes(state.instance, env.net).sum(-1).tolist()
        [3, 3]
    """
    return torch.arange(
        net.host.classes, device=instance.classes.device
    ) < instance.classes.unsqueeze(-1)


def _apply_slot(
    h: Any, rows: HostRows, slot_seeds: SlotSeeds, s: int | None, *, net: Net, pooled: bool
) -> tuple[Any, HostRows]:
    """Blend the seeds of slot s into the features, if it exists and anything runs, and pool the
    result if `pooled`.
    """
    index, params = (None, None) if s is None else (slot_seeds.indices[s], slot_seeds.params[s])
    if s is None or index is None or params is None:
        return max_pool2d(h) if pooled else h, rows
    if isinstance(h, Features):
        x = h.in_slot_order()
        after, next_rows = _apply_slot(x, rows, slot_seeds, s, net=net, pooled=pooled)
        return Features.from_slot_order(after, _continue_rows(h.carried, index)), next_rows
    plan = slot_seeds.plans[s]
    if index.parent_row is not None:
        h = take_rows(h, index.parent_row)
        rows = rows._replace(env=index.row_env)
    sizes = list(plan.sizes)
    if net.host.isolates or not h.requires_grad:
        *blocks, gate_inputs = take_row_blocks(h.detach(), index.input_rows, sizes)
    else:
        inputs = seed_inputs(h, index.input_rows, index.seeds.source, index.seeds.gates)
        *blocks, gate_inputs = inputs.split_with_sizes(sizes, -2)
    codes = [group.blueprint for group in plan.groups]
    *seeds, gates = params
    openness = None
    if plan.gates:
        openness = gate_openness(gates, gate_inputs, causal=net.host.causal)
    parts = dict(zip(codes, seeds, strict=True))
    deltas = _seed_deltas(parts, dict(zip(codes, blocks, strict=True)), net.modules)
    how = plan.multiplied_spans
    h = blend(h, deltas, index.seeds, multiplied=how, openness=openness, pooled=pooled)
    return h, rows


def _continue_rows(carried: dict[str, Tensor], index: SlotIndex) -> dict[str, Tensor]:
    """Return the values that cross a slot for the rows after it.  [R, ...] each."""
    parent = index.parent_row
    if parent is None:
        return carried
    return {name: value.index_select(0, parent) for name, value in carried.items()}


def _seed_deltas(
    parts: Mapping[Blueprint, Leaves], x: Mapping[Blueprint, Tensor], modules: Modules
) -> list[Tensor]:
    """Return the deltas of the seeds of a slot, in blocks in the order of `parts`.

    Shapes: parts {name: [R_b, *shape]} and x [B, ..., R_b, C] per blueprint in `COMPUTE_ORDER` ->
    [B, ..., m, C] each, together as many rows as the parts.
    """
    known = {
        code: leaves for code, leaves in parts.items() if isinstance(modules[code], CnnBlueprint)
    }
    deltas = cnn_deltas(known, x) if known else {}
    for code in parts:
        if code not in known:
            deltas[code] = modules[code].delta(parts[code], x[code].contiguous())
    return [deltas[code] for code in parts if code in deltas]
