"""Multiply-accumulates in closed form are those that the networks do."""

import pytest
import torch
from support import small_states
from torch.utils.flop_counter import FlopCounterMode

from morphogen.nets import cnn
from morphogen.nets import cnn as hosts
from morphogen.nets.forward import SlotSeeds, forward
from morphogen.vocab.blueprint import CNN_BLUEPRINTS
from morphogen.vocab.slot import host_macs, seed_macs

NET = small_states.net(slots=("r0c0", "r0c1", "r1c0"))
SAMPLES = 2


def counted(run):
    """Multiply-accumulates per sample: a multiplication and an addition are two operations."""
    with FlopCounterMode(display=False) as flops:
        run()
    return flops.get_total_flops() / 2 / SAMPLES


def test_a_host_does_as_many_as_the_closed_form_says():
    state = small_states.fresh(NET, 1)
    leaves = hosts.host_layout(NET.host).split(state.host.params)
    rows = hosts.HostRows(leaves, hosts.build_masks(state.instance, NET.host, state.host.params), None)
    images = torch.ones(SAMPLES, NET.host.channels_in, NET.host.size, NET.host.size)
    growth = SlotSeeds((), *((None,) * len(NET.slots),) * 2)
    assert counted(lambda: forward(images, rows, growth, net=NET)) == host_macs(NET.host)


@pytest.mark.parametrize("slot", NET.slots, ids=lambda slot: slot.name)
@pytest.mark.parametrize("blueprint", CNN_BLUEPRINTS, ids=lambda one: one.label)
def test_a_seed_does_as_many_as_the_closed_form_says(blueprint, slot):
    leaves = cnn.seed_layout(blueprint, slot.channels)
    parts = {blueprint: leaves.split(torch.ones(1, leaves.size))}
    x = torch.ones(SAMPLES, slot.height, slot.width, 1, slot.channels)
    assert counted(lambda: cnn.seed_deltas(parts, [x])) == seed_macs(blueprint, slot)
