"""Multiply-accumulates in closed form are those that the networks do, in float64, since torch counts
no kernels of others.
"""

import pytest
import torch
from support import small_states
from torch.utils.flop_counter import FlopCounterMode

from morphogen.config.host import seed_macs
from morphogen.hosts.cnn_seeds import CnnBlueprint, cnn_deltas
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.vocab.blueprint import CNN_BLUEPRINTS

NET = small_states.net(slots=("r0c0", "r0c1", "r1c0"))
SAMPLES = 2
SEEDS = 2  # one alone is computed twice where torch multiplies by a single vector


def counted(run):
    """Multiply-accumulates per sample: a multiplication and an addition are two operations."""
    with FlopCounterMode(display=False) as flops:
        run()
    return flops.get_total_flops() / 2 / SAMPLES


def test_a_host_does_as_many_as_the_closed_form_says():
    state = small_states.fresh(NET, 1)
    params = state.host.params.double()
    leaves, used = NET.host_layout.split(params), used_classes(state.instance, NET)
    rows = HostRows(leaves, NET.networks.masks(state.instance, params), None)
    shape = (SAMPLES, NET.host.channels_in, NET.host.size, NET.host.size)
    images = torch.ones(shape, dtype=torch.float64)
    growth = SlotSeeds((), *((None,) * len(NET.slots),) * 2)
    assert counted(lambda: forward(images, rows, used, growth, net=NET)) == NET.host.macs()


@pytest.mark.parametrize("slot", NET.slots, ids=lambda slot: slot.name)
@pytest.mark.parametrize("blueprint", CNN_BLUEPRINTS, ids=lambda one: one.label)
def test_a_seed_does_as_many_as_the_closed_form_says(blueprint, slot):
    (leaves, _) = NET.layouts(NET.slots.index(slot), (blueprint,))
    parts = {blueprint: leaves.split(torch.ones(SEEDS, leaves.size).double())}
    x = torch.ones(SAMPLES, *slot.size, SEEDS, slot.channels).double()
    assert (
        counted(lambda: cnn_deltas(parts, {blueprint: x})) / SEEDS
        == seed_macs(blueprint, slot)
        == CnnBlueprint(blueprint).macs(slot)
    )
