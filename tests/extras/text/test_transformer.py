"""The transformer host: parameters, initial values, causality, reach."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states
from token_streams import grown_logits

from morphogen.errors import ConfigError
from morphogen.extras.text.host import TransformerSpec
from morphogen.extras.text.networks import TransformerNetworks
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

TABLE = {  # spec/models.md 2.2, copied: width, heads, layers, block, vocabulary -> parameters
    (384, 6, 6, 256, 50_257): 30_044_544,
    (384, 6, 6, 256, 257): 10_844_544,
    (48, 4, 3, 64, 97): 92_640,
    (64, 4, 3, 64, 256): 170_560,
}
NET = small_states.token_net()
VOCABULARY, LENGTH = NET.host.vocabulary, NET.host.block


def host_of(width, heads, layers, block, vocabulary):
    return TransformerSpec(
        vocabulary=vocabulary, width=width, heads=heads, layers=layers, block=block
    )


@pytest.mark.parametrize("numbers", TABLE)
def test_the_leaves_hold_as_many_parameters_as_the_closed_form_says(numbers):
    host = host_of(*numbers)
    assert TransformerNetworks(host).layout().size == host.params() == TABLE[numbers]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"width": 18}, "host.width: expected a multiple of 2 heads, and of 4, got 18"),
        ({"heads": 3}, "host.width: expected a multiple of 3 heads, and of 4, got 16"),
        ({"layers": 4}, "host.segments: expected a divisor of the layers, got 3"),
        ({"block": 0}, "host.block: expected a number greater than or equal to 1, got 0"),
        ({"vocabulary": 1}, "host.vocabulary: expected a number greater than or equal to 2, got 1"),
        ({"reach": 7}, "host.reach: expected 0 .. 6 tokens, got 7"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_name(fault, words):
    with pytest.raises(ConfigError, match=words):
        small_states.token_host(**fault)


@pytest.mark.parametrize(
    "numbers", [(48, 4, 3, 64, 97), (64, 4, 6, 32, 256), (128, 4, 6, 16, 1_024)]
)
def test_an_untrained_host_is_at_chance(numbers):
    net = small_states.token_net(host_of(*numbers))
    state, batch = small_states.fresh(net, 2), small_states.batch(net, 2, 4)
    with torch.no_grad():
        logits = grown_logits(batch.inputs, state, net)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), batch.labels.flatten(), ignore_index=-1
    )
    assert abs(float(loss) - math.log(net.host.vocabulary)) < 0.15


@pytest.mark.slow
@given(st.integers(0, LENGTH - 2), st.integers(0, 100))
def test_a_later_token_changes_no_logit_before_it(last, seed):
    """Every blueprint under every algorithm in every stage, grown, in slots one behind the
    other.
    """
    state = small_states.nudge(small_states.all_kinds(NET), NET)
    ids = small_states.integers(0, VOCABULARY, state.batch_size[0], 2, LENGTH, seed=seed)
    other = ids.clone()
    other[..., last + 1 :] = (ids[..., last + 1 :] + 1) % VOCABULARY
    with torch.no_grad():
        first, second = (grown_logits(x, state, NET) for x in (ids, other))
    assert torch.equal(first[:, :, : last + 1], second[:, :, : last + 1])
    assert (first[:, :, last + 1 :] != second[:, :, last + 1 :]).flatten(3).any(-1).all()


@given(st.integers(0, LENGTH - 1), st.integers(0, LENGTH - 1), st.booleans())
def test_a_token_reaches_as_many_tokens_ahead_as_its_layers_let_it(place, reach, grown):
    """In a bare host; a seed of attention behind the first layer sees all tokens, whatever the
    reach of its host.
    """
    net = small_states.token_net(small_states.token_host(reach=LENGTH - 1))
    state = small_states.fresh(net, 2)
    if grown:
        state = attention_behind_the_first_layer(state, net)
    state = state.replace(instance=state.instance.replace(reach=torch.tensor([reach, LENGTH - 1])))
    ids = small_states.integers(0, VOCABULARY, 2, 1, LENGTH)
    other = ids.clone()
    other[..., place] = (ids[..., place] + 1) % VOCABULARY
    with torch.no_grad():
        changed = grown_logits(ids, state, net) != grown_logits(other, state, net)
    ends = (LENGTH if grown else min(LENGTH, place + net.host.layers * reach + 1), LENGTH)
    expected = torch.stack(
        [(torch.arange(LENGTH) >= place) & (torch.arange(LENGTH) < end) for end in ends]
    )
    assert torch.equal(changed.any(-1)[:, 0], expected)


def attention_behind_the_first_layer(state, net):
    first = torch.tensor([[1, 0, 0]]).repeat(state.batch_size[0], 1)
    stage, blueprint = (
        torch.where(first > 0, int(code), empty)
        for code, empty in ((Stage.HOLDING, int(Stage.DORMANT)), (Blueprint.ATTENTION, -1))
    )
    return small_states.nudge(
        small_states.grow(state, net, stage, blueprint, first, first.float()), net
    )
