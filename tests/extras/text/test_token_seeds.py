"""Blueprints of language models: counts, identity at birth, gradients, causality, and the gradients
of the table.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import small_states
from support.profiles import one_in
from token_streams import LENGTH, WIDTH, grown_logits, stream_net

from morphogen.config.parts import BLUEPRINTS
from morphogen.extras.text import seeds as token_seeds
from morphogen.extras.text.host import TOKEN_BLUEPRINTS
from morphogen.hosts.seed_module import gate_layout, gate_openness, seed_layout
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


@pytest.mark.parametrize("stage", [TRAINING, BLENDING])
def test_difference_02_every_parameter_gets_a_gradient_within_three_steps(stage):
    pairs = [
        (int(code), algorithm) for code in TOKEN_BLUEPRINTS for algorithm in (ADD, MULTIPLY, GATE)
    ]
    blueprint, algorithm = torch.tensor(pairs).unsqueeze(-1).unbind(1)
    alpha = torch.full(blueprint.shape, 0.5 if stage == BLENDING else 0.0)
    state = small_states.fresh(NET, len(pairs))
    state = small_states.grow(
        state, NET, torch.full_like(blueprint, stage), blueprint, algorithm, alpha
    )
    x, out_grad = features(len(pairs)), features(len(pairs), seed=1)
    rows, size = state.seeds[SLOT, "params"], gate_layout(WIDTH).size
    largest = torch.zeros_like(rows)

    def loss(rows):
        return (grown_logits(x, state, NET, {SLOT: rows}) * out_grad).sum()

    for _ in range(4):
        grad = torch.func.grad(loss)(rows)
        largest, rows = torch.maximum(largest, grad.abs()), rows - 0.01 * grad
    for e, (code, way) in enumerate(pairs):
        own = layout(Blueprint(code))
        assert all(part.norm() > 1e-5 for _, part in own.leaf_parts(largest[e : e + 1])), (
            code,
            way,
        )
        gates = [
            part.norm() for _, part in gate_layout(WIDTH).leaf_parts(largest[e : e + 1, -size:])
        ]
        learns = way == GATE and stage == BLENDING
        assert all((norm > 1e-5) == learns for norm in gates), (code, way)


@settings(max_examples=one_in(10))
@given(st.integers(0, 1000))
def test_gradients_are_those_of_the_table(seed):
    """spec/models.md 4.1, as features, deltas and gates receive them in every stage, for any
    alpha.
    """
    state = grown()
    slots = state.slots
    drawn = small_states.noise(*slots.alpha.shape, seed=seed).double()
    alpha = torch.where(slots.stage == TRAINING, 0.0, drawn.masked_fill(drawn < 0.1, 0.0))
    state = state.replace(slots=slots.replace(alpha=alpha))
    envs = state.batch_size[0]
    x, out_grad = features(envs, seed=seed).double(), features(envs, seed=seed + 1).double()
    rows = state.seeds[SLOT, "params"]

    def loss(x, rows):
        return (grown_logits(x, state, NET, {SLOT: rows}) * out_grad).sum()

    dx, drows = torch.func.grad(loss, argnums=(0, 1))(x, rows)
    for e in range(envs):
        code, way = int(slots.blueprint[e, 0]), int(slots.algorithm[e, 0])
        numbers = (x[e], out_grad[e], rows[e : e + 1], float(alpha[e, 0]))
        expected = _table(
            Blueprint(code), way, *numbers, training=int(slots.stage[e, 0]) == TRAINING
        )
        for actual, wanted in zip((dx[e], drows[e : e + 1]), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


def _table(blueprint, algorithm, h, out_grad, row, alpha, *, training):
    """Gradients of the features and the parameters of one seed.  h, out_grad [B, n, d], row [1,
    P].
    """
    size, leaves = gate_layout(WIDTH).size, layout(blueprint)

    def delta(x, row):
        return module(blueprint).delta(leaves.split(row), one_row(x)).squeeze(2)

    def openness(x, row):
        return gate_openness(gate_layout(WIDTH).split(row[:, -size:]), one_row(x), causal=True)

    d, delta_vjp, *_ = torch.func.vjp(delta, h, row)
    g, gate_vjp, *_ = torch.func.vjp(openness, h, row)
    direct, weight = (
        out_grad,
        torch.ones((), dtype=h.dtype) if training else torch.tensor(alpha, dtype=h.dtype),
    )
    slope = 1 - torch.tanh(d) ** 2
    if algorithm == MULTIPLY:
        direct = out_grad if training else out_grad * (1 + alpha * torch.tanh(d))
        received = weight * out_grad * h * slope
    else:
        received = weight * out_grad * (g if algorithm == GATE and not training else 1.0)
    through, params = delta_vjp(received)
    if algorithm == GATE and not training:
        more = gate_vjp(alpha * (out_grad * d).sum(-1, keepdim=True))
        through, params = through + more[0], params + more[1]
    return direct if training or alpha == 0 else direct + through, params


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
