"""Results of a network or an env have equal bits in any stack and under any number of threads, on a
CPU.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import made_up_rollouts as rollouts
from support import small_states
from support.plain_torch import blend_rows
from support.profiles import one_in
from support.small_runs import live, tiny_setup, world_of
from support.small_states import noise, normal
from support.stacked_rows import STACK, check_rows, same_bits, threads

from morphogen import kernels
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.hosts import sequences
from morphogen.hosts.seed_module import gate_layout, gate_openness
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.elementwise import by_vectors, silu
from morphogen.kernels.linear import linear, place_linear, rows_linear
from morphogen.kernels.norm import NormBlock, batch_norm, group_norm, masked_group_norm
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.sums import column_sums, scale_channels, spatial_mean
from morphogen.rules.rewards.example_inputs import example_steps
from morphogen.rules.rewards.protocol import Terms
from morphogen.rules.rewards.table import build_rule, rule_from_function
from morphogen.steps.validate_step import validate
from morphogen.testing.builders.tree_equality import leaves

pytestmark = pytest.mark.skipif(
    not kernels.AVAILABLE, reason="plain torch adds in orders that depend on the stack"
)
GATE = {"v1": (2, 8), "c1": (2,), "v2": (1, 2), "c2": (1,)}


def conv(channels: int, outputs: int, kernel: int, *, side: int = 8, per_channel: bool = False):
    weight = (STACK, outputs, 1 if per_channel else channels, kernel, kernel)
    return stacked_conv, {"x": (12, side, side, STACK, channels), "weight": weight}


def blended(features, delta, gate, *, algorithm: str):
    """Features with the delta of every network blended in."""
    alpha = torch.full((features.shape[-2],), 0.3)
    return blend_rows(features, delta, alpha, alpha > 1, algorithm=algorithm, openness=gate)


def normalised(x, gain, bias, scale):
    return group_norm([NormBlock(x, gain, bias, scale, relu=True)], groups=2)[0]


def masked_normalised(x, gain, bias, mask):
    mask = (mask > 0).float()
    count = mask.unflatten(-1, (2, -1)).sum(-1) * x.shape[1] * x.shape[2]
    inverse = torch.where(count > 0, 1 / count.clamp(min=1.0), 0.0)
    return masked_group_norm(
        x * mask, gain * mask, bias * mask, channel_mask=mask, inverse_count=inverse
    )


def losses(logits):
    return F.cross_entropy(
        logits.flatten(0, 1), torch.arange(12).repeat(logits.shape[0]) % 10, reduction="none"
    )


def causal_gate(x, flat):
    return gate_openness(gate_layout(WIDTH).split(flat), x, causal=True)


WIDTH = 16
PLACES = (STACK, 3, 7, WIDTH)
FEATURES, CHANNELS = (12, 8, 8, STACK, 8), (STACK, 8)
# Function and shapes of its arguments: the axis of the networks is the one of the size STACK.
LAYERS: dict[str, tuple[Callable, dict[str, tuple[int, ...]]]] = {
    "conv 3x3": conv(8, 8, 3),
    "conv 1x1": conv(4, 16, 1),
    "conv of few channels": conv(2, 2, 3),
    "conv of one channel": conv(1, 4, 3),
    "conv to few channels": conv(8, 2, 1),
    "conv of other channels": conv(6, 6, 3),
    "conv of odd sides": conv(8, 8, 3, side=5),
    "depthwise conv": conv(8, 8, 3, per_channel=True),
    "linear": (linear, {"x": (STACK, 12, 16), "weight": (STACK, 10, 16), "bias": (STACK, 10)}),
    "rows_linear": (rows_linear, {"x": FEATURES, "weight": (STACK, 5, 8), "bias": (STACK, 5)}),
    "gate": (
        lambda x, **p: gate_openness(p, x),
        {"x": (13, 5, 5, STACK, 8), **{name: (STACK, *shape) for name, shape in GATE.items()}},
    ),
    "linear to one output": (
        place_linear,
        {"x": (STACK, 65, 16), "weight": (STACK, 1, 16), "bias": (STACK, 1)},
    ),
    "linear of one input": (place_linear, {"x": (STACK, 65, 1), "weight": (STACK, 16, 1)}),
    "spatial_mean": (spatial_mean, {"x": FEATURES}),
    "scale_channels": (scale_channels, {"x": FEATURES, "factor": CHANNELS}),
    "group_norm": (
        normalised,
        {"x": FEATURES, "gain": CHANNELS, "bias": CHANNELS, "scale": CHANNELS},
    ),
    "masked_group_norm": (
        masked_normalised,
        {"x": FEATURES, "gain": CHANNELS, "bias": CHANNELS, "mask": CHANNELS},
    ),
    "batch_norm": (batch_norm, {"x": FEATURES, "gain": CHANNELS, "bias": CHANNELS}),
    "max_pool2d": (max_pool2d, {"x": FEATURES}),
    "column_sums": (lambda x: column_sums(x.detach()), {"x": (2, 33, STACK, 8)}),
    "silu": (silu, {"x": (11, 5, 5, STACK, 3)}),
    "silu of many": (silu, {"x": (16, 8, 8, STACK, 8)}),
    "sigmoid": (lambda x: by_vectors(torch.sigmoid, x), {"x": (11, STACK, 3)}),
    "place_linear": (
        place_linear,
        {"x": PLACES, "weight": (STACK, 24, WIDTH), "bias": (STACK, 24)},
    ),
    "running_mean": (sequences.running_mean, {"x": PLACES}),
    "gate of a sequence": (
        causal_gate,
        {"x": (3, 7, STACK, WIDTH), "flat": (STACK, gate_layout(WIDTH).size)},
    ),
    "losses": (losses, {"logits": (STACK, 12, 10)}),
    **{
        f"blend, {name}": (
            partial(blended, algorithm=name),
            {"features": FEATURES, "delta": FEATURES, "gate": (12, STACK)},
        )
        for name in ("add", "multiply", "gate")
    },
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_network_is_the_same_in_a_stack_of_any_size(name):
    check_rows(*LAYERS[name])


@pytest.mark.parametrize("hidden", [64, 128])
def test_a_policy_acts_the_same_for_an_env_among_any_others(hidden):
    policy = rollouts.small(hidden=hidden)
    params, envs = policy.init(rollouts.KEY), 36
    seen = rollouts.observation(envs), rollouts.masks(envs)
    memory = policy.initial_hidden(envs)
    memory.update({name: normal(envs, hidden, seed=seed) for seed, name in enumerate("hc")})
    draws = rollouts.noise(envs, 3, 0)
    whole = leaves(policy.act(params, *seen, memory, draws))
    for rows in (2, 3, 4, 5, 6, 7, 9, 12, 18, 36):
        for first in {0, envs - rows}:
            some = slice(first, first + rows)
            with threads(1 + rows % 2):
                part = policy.act(params, *(x[some] for x in (*seen, memory, draws)))
            for name, leaf in leaves(part).items():
                assert same_bits(leaf, whole[name][some]), (name, rows, first)


def test_the_loss_of_an_env_on_many_chunks_does_not_depend_on_the_number_of_envs(monkeypatch):
    net = small_states.net()
    monkeypatch.setattr(type(net.host), "chunk", 2)
    state, split = small_states.fresh(net, 40), small_states.split(net)

    def loss(state):
        asked = small_states.every(state, net)
        plan = small_states.plan(state, net, asked=asked)
        return validate(state, split, *asked, plan, net=net).loss

    whole = loss(state)
    for rows in (2, 3, 5, 8, 13, 24, 39):
        assert same_bits(loss(state[:rows]), whole[:rows]), rows


def seven_parts(inputs):
    return {f"part{n}": inputs.val_acc / (n + 3) for n in range(7)}


@pytest.mark.parametrize("name", [*sorted(RULES), "of seven parts"])
def test_a_reward_does_not_depend_on_the_number_of_envs(name):
    if name in RULES:
        rule = build_rule(
            RewardSpec(rule=name), param_budget=20_000, episode_length=75, gamma=0.995
        )
    else:
        rule = rule_from_function(seven_parts)(RewardSpec(governor_penalty=1.0), Terms(1, 1, 1.0))
    some, always = torch.arange(STACK) % 3, torch.ones(STACK, dtype=torch.bool)
    numbers = {"rolled_back": noise(STACK, seed=1) < 0.3, "val_acc": normal(STACK, seed=3)}
    numbers |= {"uncommitted_improvement": normal(STACK, seed=2), "uncommitted_valid": always}
    for t, step in enumerate(example_steps()):
        inputs = step[some].replace(**numbers)
        slots = inputs.slots.replace(contribution=normal(*inputs.slots.stage.shape, seed=t))
        inputs = inputs.replace(slots=slots.replace(contribution_valid=slots.stage > 0))
        start = rule.init(*inputs.slots.stage.shape)
        whole = rule(inputs, start)
        for rows in (1, 2, 3, 8, 12, 31, 47):
            part = rule(inputs[:rows], start[:rows])
            assert same_bits(part[0], whole[0][:rows]), (t, rows)
            for key, paid in part[1].items():
                assert same_bits(paid, whole[1][key][:rows]), (t, rows, key)


@pytest.mark.slow
@settings(max_examples=one_in(10))
@given(st.integers(5, 14), st.data())
def test_an_env_lives_the_same_in_any_shard_under_any_number_of_threads(envs, data):
    setup = tiny_setup(envs=envs, episode_length=5)
    first = data.draw(st.integers(0, envs - 2))
    rows = data.draw(st.integers(2, envs - first))
    whole = live(world_of(setup))
    with threads(2):
        part = live(world_of(setup, first=first, envs=rows))
    for epoch, own in zip(whole, part, strict=True):
        wanted = {**leaves(epoch.after), **leaves(epoch.choice), "reward": epoch.step.reward}
        for name, leaf in {
            **leaves(own.after),
            **leaves(own.choice),
            "reward": own.step.reward,
        }.items():
            assert same_bits(leaf, wanted[name][first : first + rows]), name
