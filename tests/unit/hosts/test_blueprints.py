"""Blueprints: counts, identity at birth, gradients soon after, shapes."""

import pytest
import torch
from support import small_states
from support.plain_torch import blend_rows

from morphogen.hosts.cnn_seeds import CnnBlueprint, cnn_deltas
from morphogen.hosts.net import Net
from morphogen.hosts.seed_module import gate_layout, gate_openness, seed_layout
from morphogen.steps.reset_step import init_seed_params
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, Blueprint
from morphogen.vocab.slot import SlotSpec

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
COUNTS = {  # spec/models.md 3.5, copied
    "norm": (3, 5, 9, 17, 33, 65, 129, 257),
    "attention": (3, 6, 12, 40, 144, 544, 2_112, 8_320),
    "conv_small": (3, 8, 24, 80, 288, 1_088, 4_224, 16_640),
    "bottleneck": (594, 612, 648, 720, 864, 1_152, 4_480, 17_664),
    "depthwise": (12, 26, 60, 152, 432, 1_376, 4_800, 17_792),
    "conv_light": (11, 40, 152, 592, 2_336, 9_280, 36_992, 147_712),
    "conv_heavy": (22, 80, 304, 1_184, 4_672, 18_560, 73_984, 295_424),
}
GATES = (25, 33, 49, 81, 145, 273, 1_057, 4_161)


def net_of(channels: int) -> Net:
    """A net with one slot."""
    return Net(small_states.DIGITS, (SlotSpec("r0c0", channels, (4, 4)),))


def newborn(blueprint, channels: int, rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters and gate of fresh seeds."""
    net = net_of(channels)
    codes, draws = torch.full((rows,), int(blueprint)), small_states.noise(rows, net.seed_sizes[0])
    row = init_seed_params(codes, draws, 0, net=net)
    return row[:, : net.counts[0][blueprint]], row[:, -net.gate_counts[0] :]


def layout(blueprint, channels):
    return seed_layout(CnnBlueprint(blueprint), channels)


def delta(blueprint, params, x):
    """The delta of seeds of one kind.  params [R, P], x [B, H, W, R, C] -> the same."""
    return cnn_deltas({blueprint: layout(blueprint, x.shape[-1]).split(params)}, {blueprint: x})[
        blueprint
    ]


def norms(leaves, row):
    """L2 norm of every leaf of a single seed."""
    return torch.stack([part.norm() for _, part in leaves.leaf_parts(row)])


def contribution(blueprint, algorithm, params, gate, h, *, alpha, training):
    """Contribution of one seed to features h [B, H, W, 1, C]."""
    openness = gate_openness(gate_layout(h.shape[-1]).split(gate), h.detach())
    added = delta(blueprint, params, h.detach())
    when = torch.tensor([alpha]), torch.tensor([training])
    return blend_rows(h, added, *when, algorithm=algorithm, openness=openness) - h


@pytest.mark.parametrize("blueprint", CNN_BLUEPRINTS)
def test_counts_are_those_of_the_table_and_of_the_leaves(blueprint):
    for channels, expected in zip(WIDTHS, COUNTS[blueprint.label], strict=True):
        assert layout(blueprint, channels).size == expected
    assert tuple(gate_layout(c).size for c in WIDTHS) == GATES


@pytest.mark.parametrize("algorithm", ["add", "multiply", "gate"])
@pytest.mark.parametrize("blueprint", CNN_BLUEPRINTS)
def test_difference_02_every_seed_is_the_identity_at_birth(blueprint, algorithm):
    for channels in WIDTHS:
        params, gate = newborn(blueprint, channels)
        h = small_states.normal(2, 3, 3, 1, channels)
        for alpha, training in ((0.0, True), (0.3, False), (1.0, False)):
            result = contribution(
                blueprint, algorithm, params, gate, h, alpha=alpha, training=training
            )
            assert torch.equal(h + result, h)


@pytest.mark.parametrize("algorithm", ["add", "multiply", "gate"])
@pytest.mark.parametrize("blueprint", CNN_BLUEPRINTS)
@pytest.mark.parametrize("training", [True, False])
def test_difference_02_every_parameter_gets_a_gradient_within_three_steps(
    blueprint, algorithm, training
):
    for channels in (6, 64):
        params, gate = newborn(blueprint, channels)
        h, out_grad = (
            small_states.normal(4, 5, 5, 1, channels),
            small_states.normal(4, 5, 5, 1, channels, seed=1),
        )
        best = torch.zeros(len(layout(blueprint, channels).leaves))
        gates = torch.zeros(4)

        def loss(both, h=h, out_grad=out_grad):
            y = contribution(
                blueprint, algorithm, *both, h, alpha=0.0 if training else 0.5, training=training
            )
            return (out_grad * (h + y)).sum()

        for _ in range(4):
            grads = torch.func.grad(loss)((params, gate))
            best = torch.maximum(best, norms(layout(blueprint, channels), grads[0]))
            gates = torch.maximum(gates, norms(gate_layout(channels), grads[1]))
            params, gate = params - 0.01 * grads[0], gate - 0.01 * grads[1]
        assert (best > 1e-5).all()
        if algorithm == "gate":
            assert (gates > 1e-5).all() != training


def test_a_gate_opens_at_about_nine_tenths_and_stays_inside_its_bounds():
    _, gate = newborn(Blueprint.NORM, 8, rows=50)
    openness = gate_openness(gate_layout(8).split(gate), small_states.normal(6, 50, 8))
    assert 0.8 < float(openness.mean()) < 0.95
    assert ((openness > 0) & (openness < 1)).all()
