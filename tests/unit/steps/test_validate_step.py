"""Validation under every coalition: equal to stacking full rows, to plain modules, and blind to its
neighbours.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states

from morphogen import kernels
from morphogen.hosts.forward_pass import forward
from morphogen.steps.validate_step import validate

NET = small_states.net()
DEEP = small_states.net(
    small_states.cnn_host(2, 3, 3, 2, 1, 8, 6), ("r1c1", "r0c0", "r1c0", "r0c2")
)


def measure(state, net=NET, *, asked=None, split=None, counted=None):
    asked = asked or small_states.every(state, net)
    split = small_states.split(net) if split is None else split
    plan = small_states.plan(state, net, asked=asked)
    return validate(state, split, *asked, plan, net=net, counted=counted)


def without(state, net, env, coalition):
    """One env in which the seeds that are off are gone: what an ablation means."""
    alone = state[env : env + 1]
    off = torch.tensor([[not coalition >> s & 1 for s in range(len(net.slots))]])
    live = (alone.slots.stage >= 4) & (alone.slots.stage <= 6) & (alone.slots.alpha > 0)
    stage = torch.where(off & live, 1, alone.slots.stage)
    return alone.replace(slots=alone.slots.replace(stage=stage))


@pytest.mark.slow
@given(st.integers(0, 40))
def test_every_coalition_is_worth_what_the_env_without_the_others_is_worth(seed):
    state = small_states.double(small_states.mixed(DEEP, 3, seed=seed))
    split = small_states.split(DEEP, 12)
    split = split.replace(inputs=split.inputs.double())
    found = measure(state, DEEP, split=split)
    for e in range(3):
        for k in range(0, 16, 3):
            if found.evaluated[e, k]:
                own = without(state, DEEP, e, int(found.coalition[e, k]))
                just = measure(
                    own,
                    DEEP,
                    asked=(found.coalition[e : e + 1, :1], torch.ones(1, 1, dtype=torch.bool)),
                    split=split,
                )
                torch.testing.assert_close(found.accuracy[e, k], just.accuracy[0, 0])


def test_two_coalitions_that_are_the_same_share_a_row_and_a_value():
    state = small_states.mixed(NET, 5, seed=1)
    full = torch.full((5, 4), 7)
    asked = full, torch.tensor([[True, True, False, True]]).expand(5, 4)
    assert small_states.plan(state, NET, asked=asked).rows == (5, 5, 5)
    found = measure(state, asked=asked)
    assert torch.equal(found.accuracy[:, 0], found.accuracy[:, 3])
    assert not found.accuracy[:, 2].any()


def test_an_ablated_seed_that_is_broken_is_invisible():
    """Property 9."""
    state = small_states.mixed(NET, 6, seed=2)
    broken, doubled = state.clone(), state.clone()
    for name in NET.names:
        row = broken.seeds[name]["params"]
        row[row != 0] = torch.nan
        doubled.seeds[name]["params"].mul_(2)
    assert not torch.equal(measure(doubled).loss, measure(state).loss), (
        "they matter where they are on"
    )
    coalition = torch.zeros(6, 1, dtype=torch.int64)
    asked = coalition, torch.ones(6, 1, dtype=torch.bool)
    bare = state.replace(slots=small_states.fresh(NET, 6).slots)
    for one in (state, broken, doubled):
        assert torch.equal(measure(one, asked=asked).loss, measure(bare, asked=asked).loss)


def test_an_incubating_seed_does_not_run():
    state = small_states.mixed(NET, 6, seed=2)
    slots = state.slots.replace(
        stage=torch.where(state.slots.stage > 1, 3, 1), alpha=0 * state.slots.alpha
    )
    state = state.replace(slots=slots)
    bare = state.replace(slots=small_states.fresh(NET, 6).slots)
    assert torch.equal(measure(state).loss, measure(bare).loss)


def test_logits_that_are_not_finite_count_as_wrong():
    state = small_states.fresh(NET, 3)
    host = state.host.params.clone()
    host[1, -1] = torch.nan
    found = measure(state.replace(host=state.host.replace(params=host)))
    assert float(found.accuracy[1, 0]) == 0.0
    assert not torch.isfinite(found.loss[1])
    assert torch.equal(found.accuracy[::2], measure(state).accuracy[::2])


def test_samples_of_classes_that_are_not_in_use_do_not_count():
    state = small_states.fresh(NET, 2)
    labels = torch.stack((torch.arange(10), torch.tensor([-1, 1, -1, 0, *[-1] * 6])))
    own = state.instance.replace(class_of=labels, classes=torch.tensor([10, 2]))
    split = small_states.split(NET, 80)
    found = measure(state.replace(instance=own), split=split)
    use = (split.labels == 1) | (split.labels == 3)
    subset = split.replace(inputs=split.inputs[use], labels=split.labels[use])
    just = measure(state.replace(instance=own), split=subset)
    torch.testing.assert_close(found.accuracy[1], just.accuracy[1])
    torch.testing.assert_close(found.loss[1], just.loss[1])


def some_classes(state):
    """Envs that use all classes, two, and one."""
    rows = ([*range(10)], [-1, 1, -1, 0, *[-1] * 6], [*[-1] * 9, 0])
    return state.replace(
        instance=state.instance.replace(
            class_of=torch.tensor(rows), classes=torch.tensor([10, 2, 1])
        )
    )


def test_no_result_depends_on_whether_samples_that_do_not_count_are_passed(monkeypatch):
    state, split = some_classes(small_states.mixed(NET, 3, seed=4)), small_states.split(NET, 80)
    whole = measure(state, split=split)
    monkeypatch.setattr(type(NET.host), "chunk", 50)
    chosen = measure(state, split=split, counted=80)
    assert torch.equal(whole.accuracy, chosen.accuracy)
    torch.testing.assert_close(whole.loss, chosen.loss)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_samples_that_are_not_chosen_are_never_seen(norm):
    """Of an env that uses two classes, and a batch whose statistics all samples share."""
    net = small_states.net(replace(small_states.DIGITS, norm=norm))
    state, split = some_classes(small_states.mixed(net, 3, seed=4))[1:], small_states.split(net, 80)
    own = (split.labels == 1) | (split.labels == 3) | (split.labels == 9)
    broken = split.replace(inputs=torch.where(own.view(-1, 1, 1, 1), split.inputs, torch.nan))
    counted = int(((split.labels == 1) | (split.labels == 3)).sum())
    expected = measure(state, net, split=split, counted=counted)
    found = measure(state, net, split=broken, counted=counted)
    assert torch.isfinite(found.loss).all()
    assert torch.equal(found.loss, expected.loss)
    assert torch.equal(found.accuracy, expected.accuracy)


def test_the_size_of_a_pass_changes_nothing_but_rounding(monkeypatch):
    state = small_states.mixed(NET, 5, seed=4)
    one = measure(state)
    monkeypatch.setattr(type(NET.host), "chunk", 7)
    other = measure(state)
    assert torch.equal(one.accuracy, other.accuracy)
    torch.testing.assert_close(one.loss, other.loss)


def test_the_env_as_it_is_comes_out_bit_for_bit_as_without_ablations():
    state = small_states.mixed(NET, 6, seed=7)
    coalition, _ = small_states.every(state, NET)
    alone = measure(state, asked=(coalition[:, :1], torch.ones(6, 1, dtype=torch.bool)))
    whole = measure(state)
    if kernels.CAN_CONVOLVE:
        assert torch.equal(whole.loss, alone.loss)
    else:  # torch picks the order of its sums by the number of rows
        torch.testing.assert_close(whole.loss, alone.loss, rtol=1e-6, atol=0)
    assert torch.equal(whole.accuracy[:, :1], alone.accuracy)


@pytest.mark.parametrize("envs", [1, 6])
def test_as_many_rows_pass_through_the_host_as_the_players_of_each_env_ask_for(monkeypatch, envs):
    """Exact regime: 2^A rows an env, whoever else is there; counted where logits leave the
    network.
    """
    state = small_states.mixed(NET, 6, seed=2)[:envs]
    rows = []

    def counted(*given, **knobs):
        logits = forward(*given, **knobs)
        rows.append(logits.shape[0])
        return logits

    monkeypatch.setattr("morphogen.steps.validate_step.forward", counted)
    measure(state)
    players = ((state.slots.stage >= 4) & (state.slots.stage <= 6) & (state.slots.alpha > 0)).sum(
        -1
    )
    assert rows == [int((2**players).sum())]
