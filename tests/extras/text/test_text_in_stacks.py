"""Layers, blueprints and hosts of language models have equal bits in any stack, on a CPU."""

from collections.abc import Callable
from functools import partial

import pytest
from support import small_states
from support.stacked_rows import STACK, check_rows

from morphogen import kernels
from morphogen.extras.text import seeds
from morphogen.extras.text.attention import causal_attention
from morphogen.extras.text.standardise import normed_linear, standardise
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.seed_module import seed_layout
from morphogen.kernels.elementwise import gelu

pytestmark = pytest.mark.skipif(
    not kernels.AVAILABLE, reason="plain torch adds in orders that depend on the stack"
)
TOKEN_SEEDS = (
    *(seeds.TOKEN_ATTENTION, seeds.TOKEN_NORM, seeds.LORA, seeds.LORA_LARGE),
    *(seeds.MLP_SMALL, seeds.MLP, seeds.FLEX_ATTENTION),
)
WIDTH = 16
TOKENS = (STACK, 3, 7, WIDTH)


def token_blueprint(module):
    """The delta of seeds of a language model, for flat parameters."""
    layout = seed_layout(module, WIDTH)
    shapes = {"x": (3, 7, STACK, WIDTH), "flat": (STACK, layout.size)}
    return lambda x, flat: module.delta(layout.split(flat), x), shapes


def near_attention(qkv, reach):
    """Attention of networks that see up to two tokens back."""
    return causal_attention(qkv, heads=4, reach=(reach.detach().abs() * 2).long())


def language_model(flat):
    """Logits of hosts for rows of tokens that all share."""
    net = small_states.token_net()
    rows = HostRows(net.host_layout.split(flat), (), None)
    h = net.networks.embed(small_states.integers(0, net.host.vocabulary, 12, net.host.block))
    for i in range(net.host.segments):
        h = net.networks.stage(i, h, rows)
    return net.networks.head(h, rows)


# Function and shapes of its arguments: the axis of the networks is the one of the size STACK.
LAYERS: dict[str, tuple[Callable, dict[str, tuple[int, ...]]]] = {
    "normed_linear": (
        normed_linear,
        {
            "x": TOKENS,
            "gain": (STACK, WIDTH),
            "shift": (STACK, WIDTH),
            "weight": (STACK, 24, WIDTH),
        },
    ),
    "standardise": (standardise, {"x": TOKENS}),
    "causal_attention": (partial(causal_attention, heads=4), {"qkv": (STACK, 3, 7, 3 * WIDTH)}),
    "attention within reach": (
        near_attention,
        {"qkv": (STACK, 3, 7, 3 * WIDTH), "reach": (STACK,)},
    ),
    "gelu": (gelu, {"x": (STACK, 3, 7, 5)}),
    "language model": (language_model, {"flat": (STACK, small_states.token_host().params())}),
    **{f"token {code.name}": token_blueprint(code) for code in TOKEN_SEEDS},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_network_is_the_same_in_a_stack_of_any_size(name):
    check_rows(*LAYERS[name])
