"""Blueprints of language models: counts, identity at birth, gradients, isolation, attention."""

import pytest
import torch
from support import small_states
from token_streams import LENGTH, WIDTH, grown_logits, stream_net

from morphogen.config.parts import BLUEPRINTS
from morphogen.extras.text import seeds as token_seeds
from morphogen.extras.text.host import TOKEN_BLUEPRINTS
from morphogen.hosts.seed_module import gate_layout, seed_layout
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

WIDTHS = (48, 64, 128, 384)
COUNTS = {  # spec/models.md 3.5, copied
    "norm": (97, 129, 257, 769),
    "lora": (768, 1_024, 2_048, 6_144),
    "lora_large": (3_072, 4_096, 8_192, 24_576),
    "attention": (9_408, 16_640, 66_048, 591_360),
    "flex_attention": (9_408, 16_640, 66_048, 591_360),
    "mlp_small": (9_360, 16_576, 65_920, 590_976),
    "mlp": (18_672, 33_088, 131_712, 1_181_568),
}
GATES = (601, 1_057, 4_161, 37_057)
NET = stream_net()
SLOT = NET.slots[0].name
TRAINING, BLENDING = int(Stage.TRAINING), int(Stage.BLENDING)
ADD, MULTIPLY, GATE = 1, 2, 3


def module(blueprint: Blueprint):
    return NET.modules[blueprint]


def layout(blueprint, width=WIDTH):
    return seed_layout(module(blueprint), width)


def features(envs: int, *, seed: int = 0):
    return small_states.normal(envs, 3, LENGTH, WIDTH, seed=seed)


def one_row(x):
    """Features of one env, [B, n, d], as a blueprint takes them: [B, n, 1, d]."""
    return x.unsqueeze(2)


def grown(*, double: bool = True):
    """Every blueprint under every algorithm in every stage, an env each, away from birth."""
    state = small_states.nudge(small_states.all_kinds(NET), NET)
    return small_states.double(state) if double else state


@pytest.mark.parametrize("blueprint", TOKEN_BLUEPRINTS)
def test_counts_are_those_of_the_table_and_of_the_leaves(blueprint):
    for width, expected in zip(WIDTHS, COUNTS[blueprint.label], strict=True):
        assert layout(blueprint, width).size == expected
    assert tuple(gate_layout(d).size for d in WIDTHS) == GATES


def test_difference_02_every_seed_is_the_identity_at_birth():
    state = small_states.all_kinds(NET)
    x = features(state.batch_size[0])
    assert state.seeds[SLOT, "params"].any(-1).all()
    assert torch.equal(grown_logits(x, state, NET), x)


def test_no_gradient_passes_through_the_inputs_of_seeds_of_a_host_that_isolates_them():
    state, closed = grown(), stream_net(isolates=True)
    x, out_grad = (
        features(state.batch_size[0]).double(),
        features(state.batch_size[0], seed=1).double(),
    )
    grads = [
        torch.func.grad(lambda x, own=net: (grown_logits(x, state, own) * out_grad).sum())(x)
        for net in (NET, closed)
    ]
    added = (state.slots.algorithm[:, 0] != MULTIPLY) | (state.slots.stage[:, 0] == TRAINING)
    assert torch.equal(grads[1][added], out_grad[added])
    same = (grads[0] == grads[1]).flatten(1).all(-1)
    assert torch.equal(same, state.slots.stage[:, 0] == TRAINING)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("length", [1, 5, 64, 130])
def test_flexible_attention_is_attention(length):
    leaves = seed_layout(token_seeds.FLEX_ATTENTION, 16)
    params = leaves.split(0.3 * small_states.normal(2, leaves.size))
    x = small_states.normal(2, 3, length, 16)
    flexible = token_seeds.flexible_attention(params, x)
    plain = BLUEPRINTS["token_attention"].delta(params, x.permute(1, 2, 0, 3)).permute(2, 0, 1, 3)
    torch.testing.assert_close(flexible, plain, rtol=1e-5, atol=1e-5)
