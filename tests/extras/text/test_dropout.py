"""Dropout of language models: in training alone, of the streams of env and minibatch."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from support import small_states

from morphogen.extras.text.dropout import drop_values
from morphogen.hosts.net import Net
from morphogen.state import rng
from morphogen.steps.train import start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

NET = small_states.token_net()
DROPPING = Net(replace(NET.host, dropout=0.25), NET.slots)
KNOBS = {"spec": small_states.SPEC, "lifecycle": small_states.LIFECYCLE}
ENVS = 5


def losses(net, state, *, minibatches=2):
    """Losses [M, E] of minibatches of the same tokens, without steps between them."""
    plan, batch = small_states.plan(state, net), small_states.batch(net, state.batch_size[0])
    progress, seen = start_epoch(state, plan, net=net), []
    for _ in range(minibatches):
        after, stats = train_minibatch(progress, batch, plan, net=net, **KNOBS)
        progress = progress._replace(tally=after.tally)
        seen.append(stats.loss)
    return torch.stack(seen)


def test_every_minibatch_drops_other_activations_and_a_repetition_the_same():
    state = small_states.fresh(NET, ENVS)
    one, again = losses(DROPPING, state), losses(DROPPING, state)
    assert torch.equal(one, again)
    assert (one[0] != one[1]).all()
    plain = losses(NET, state)
    assert torch.equal(plain[0], plain[1])
    assert (plain != one).all()


def test_an_env_drops_the_same_whatever_envs_are_beside_it():
    state = small_states.fresh(NET, ENVS)
    alone = state[3:]
    batch = small_states.batch(DROPPING, ENVS)
    whole, part = (small_states.plan(rows, DROPPING) for rows in (state, alone))
    _, all_rows = train_minibatch(
        start_epoch(state, whole, net=DROPPING), batch, whole, net=DROPPING, **KNOBS
    )
    _, own_rows = train_minibatch(
        start_epoch(alone, part, net=DROPPING), batch[3:], part, net=DROPPING, **KNOBS
    )
    torch.testing.assert_close(own_rows.loss, all_rows.loss[3:], rtol=1e-6, atol=1e-6)
    _, other = train_minibatch(start_epoch(state, whole, net=NET), batch, whole, net=NET, **KNOBS)
    assert (other.loss[3:] - own_rows.loss).abs().min() > 1e-3


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_is_dropped_and_the_rest_scaled_up(share):
    streams = rng.stream(rng.env_keys(3, 0, 4), rng.Purpose.DROPOUT)
    drop = partial(drop_values, streams=streams, share=share)
    x = drop(torch.ones(4, 50, 10, 8), place=2)
    assert torch.equal(x.unique(), torch.tensor([0.0, 1 / (1 - share)]))
    assert (x == 0).float().mean().item() == pytest.approx(share, abs=0.02)
    assert not torch.equal(x, drop(torch.ones_like(x), place=3))


def test_validation_drops_nothing():
    state, split = small_states.mixed(NET, ENVS), small_states.split(NET)
    requested = small_states.every(state, NET)
    with_dropout, without = (
        validate(state, split, *requested, small_states.plan(state, net), net=net)
        for net in (DROPPING, NET)
    )
    assert torch.equal(with_dropout.accuracy, without.accuracy)
    assert torch.equal(with_dropout.loss, without.loss)
