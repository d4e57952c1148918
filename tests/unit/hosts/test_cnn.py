"""The CNN host: parameters, widths, classes, normalisation."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states

import morphogen as mg
from morphogen.config.host import CnnSpec
from morphogen.hosts import cnn
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.net import Net
from morphogen.rules.counts import seed_params, used_channels
from morphogen.steps.validate_step import validate

# base, blocks, kernel, pools, channels in, size, classes -> parameters
TABLE = [
    ((32, 3, 3, 3, 3, 32, 10), 94_762),
    ((8, 3, 3, 3, 3, 32, 10), 6_418),
    ((8, 5, 3, 5, 3, 32, 10), 99_922),
    ((1, 3, 1, 3, 3, 32, 10), 77),
    ((2, 3, 1, 0, 3, 32, 10), 164),
    ((16, 3, 3, 3, 3, 32, 10), 24_346),
    ((2, 5, 1, 5, 3, 32, 10), 1_140),
    ((4, 2, 3, 1, 1, 8, 10), 438),
    ((2, 2, 1, 1, 1, 8, 10), 72),
]
NET = small_states.net()


def logits(state, net, images):
    """Logits of the hosts without seeds for shared images."""
    masks, none = net.networks.masks(state.instance, state.host.params), (None,) * len(net.slots)
    rows = HostRows(net.host_layout.split(state.host.params), masks, None)
    return forward(
        images, rows, used_classes(state.instance, net), SlotSeeds((), none, none), net=net
    )


def test_a_task_that_uses_all_classes_masks_no_logit():
    few, all_used = (
        mg.make("digits", envs=2, instance={"classes": (low, 10)}).net for low in (3, 10)
    )
    assert (few.all_classes, all_used.all_classes) == (False, True)
    state = small_states.fresh(NET, 2)
    state.instance.classes.copy_(torch.tensor([3, 10]))
    images = small_states.split(NET, 5).inputs
    masked, whole = (logits(state, net, images) for net in (NET, replace(NET, all_classes=True)))
    assert (masked[0, :, 3:] == -1e4).all()
    assert (whole[0, :, 3:] != -1e4).all()
    assert torch.equal(masked[0, :, :3], whole[0, :, :3])
    assert torch.equal(masked[1], whole[1])


@pytest.mark.parametrize(("numbers", "count"), TABLE)
def test_the_leaves_hold_as_many_parameters_as_the_closed_form_says(numbers, count):
    host = small_states.cnn_host(*numbers)
    assert cnn.CnnNetworks(host).layout().size == host.params() == count


@given(st.floats(0.01, 1.0), st.integers(2, 10), st.sampled_from([row[0] for row in TABLE]))
def test_host_parameters_in_use_are_those_of_the_narrowed_host(width, classes, numbers):
    host = small_states.cnn_host(*numbers)
    width = float(torch.tensor(width))
    state = small_states.fresh(small_states.net(slots=("r0c0",)), 2)
    instance = state.instance.replace(
        width=torch.tensor([width, 1.0]), classes=torch.tensor([classes, 2])
    )
    assert cnn.CnnNetworks(host).params_in_use(instance).tolist() == [
        host.params(width, classes),
        host.params(1.0, 2),
    ]


@pytest.mark.parametrize(("width", "kept"), [(1.0, 8), (0.5, 4), (0.51, 5), (0.375, 3), (0.01, 1)])
def test_a_share_of_the_channels_is_rounded_up(width, kept):
    assert int(used_channels(torch.tensor(width), 8)) == kept


def test_initial_loss_is_below_one_and_a_half_times_guessing():
    state = small_states.fresh(NET, 6)
    split = small_states.split(NET, 100)
    result = logits(state, NET, split.inputs)
    loss = torch.nn.functional.cross_entropy(result.flatten(0, 1), split.labels.repeat(6))
    assert float(loss) < 1.5 * math.log(10)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_difference_03_a_seed_that_only_rescales_is_worth_nothing(norm):
    """Normalisation does not remember: features three times as large are the same features to the
    next block.
    """
    host = CnnSpec(
        base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10, norm=norm
    )
    net = Net(host, host.pick_slots(("r0c0",)))
    ones = torch.ones(3, 1, dtype=torch.int64)
    state = small_states.grow(
        small_states.fresh(net, 3), net, 6 * ones, 2 * ones, ones, ones.float()
    )
    row = state.seeds["r0c0", "params"].clone()
    row[:, 8:12] = 40.0  # attention with b2 large: d = x, y = 2 h
    state.seeds["r0c0"]["params"] = row
    split = small_states.split(net, 60)
    measured = validate(
        state,
        split,
        *small_states.every(state, net),
        small_states.plan(state, net),
        net=net,
    )
    assert measured.accuracy[:, 0].tolist() == measured.accuracy[:, 1].tolist()


@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 3), st.integers(0, 2))
def test_difference_17_seed_parameters_depend_on_what_a_seed_is_and_on_nothing_else(
    stage, blueprint, algorithm, mode
):
    one = torch.ones(1, 3, dtype=torch.int64)
    own = {"stage": stage, "blueprint": blueprint, "algorithm": algorithm, "alpha_mode": mode}
    slots = small_states.fresh(NET, 1).slots.replace(
        alpha=0.1 * mode * one.float(), **{name: value * one for name, value in own.items()}
    )
    pairs = zip(NET.counts, NET.gate_counts, strict=True)
    expected = [row[blueprint] + (algorithm == 3) * gate for row, gate in pairs]
    result = seed_params(slots, NET.counts, NET.gate_counts)
    assert result[0].tolist() == (expected if 2 <= stage <= 6 else [0, 0, 0])
