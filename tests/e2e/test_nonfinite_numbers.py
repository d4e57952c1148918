"""NaN, infinity and 1e30 put into real runs: they stay in the env, or in the update, that they
occur in.
"""

import math
from functools import partial
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.extras import needs_extra
from support.nan_injection import BAD, ENVS, LENGTH, Run, only, records, seen, small
from support.profiles import one_in

from morphogen.data.feed import Feed
from morphogen.errors import TrainingDiverged
from morphogen.testing.builders.tree_equality import leaves

SETUP = small()
GATED = "r0c0"  # the slot with a seed that is blended in from epoch 2 on
GATE = SETUP.net.gate_counts[SETUP.net.names.index(GATED)]
bad_values = st.sampled_from(sorted(BAD)).map(BAD.__getitem__)
moments = st.integers(0, LENGTH - 1)
few, fewer = settings(max_examples=one_in(20)), settings(max_examples=one_in(30))


@pytest.fixture(scope="module")
def calm():
    """A run without a fault."""
    return Run(SETUP).rounds(1)


def of_host(leaf, state, env, value):
    return state.replace(
        host=state.host.replace(**{leaf: only(env, getattr(state.host, leaf), value)})
    )


def of_seed(leaf, part, state, env, value):
    """In the body of the seed, or in its gate network."""
    seeds = state.seeds.clone()
    row = seeds[GATED, leaf].clone()
    chosen = slice(None, -GATE) if part == "body" else slice(-GATE, None)
    row[env, chosen] = value
    seeds[GATED, leaf] = row
    return state.replace(seeds=seeds)


def of_ledger(state, env, value):
    return state.replace(ledger=state.ledger.apply(lambda leaf: only(env, leaf, value)))


def of_signals(state, env, value):
    """In everything that was measured: the policy observes it, the reward is worked out from it."""
    real = lambda leaf: only(env, leaf, value) if leaf.is_floating_point() else leaf
    return state.replace(signals=state.signals.apply(real))


IN_STATE = {
    "host weights": partial(of_host, "params"),
    "host momentum": partial(of_host, "momentum"),
    "seed weights": partial(of_seed, "params", "body"),
    "seed momentum": partial(of_seed, "momentum", "body"),
    "gate weights": partial(of_seed, "params", "gate"),
    "gate momentum": partial(of_seed, "momentum", "gate"),
    "ledger": of_ledger,
    "signals": of_signals,
}


def alike(found, wanted):
    """Equal, real numbers up to rounding."""
    return (
        torch.allclose(found, wanted, rtol=1e-5, atol=1e-7)
        if found.is_floating_point()
        else found.equal(wanted)
    )


def contained(calm, sick, env):
    """The other envs equal the run without the fault, and the round that follows is sound.

    Up to the rounding of gates: torch computes a sigmoid by vectors and the rest of a tensor number
    by number, which differ in the last bit, so that it matters how many gates there are.
    """
    others = [e for e in range(ENVS) if e != env]
    for t, (one, other) in enumerate(zip(records(calm), records(sick)[:LENGTH], strict=True)):
        assert [name for name in one if not alike(one[name][others], other[name][others])] == [], t
        one, other = leaves(calm.epochs[t].after), leaves(sick.epochs[t].after)
        assert [name for name in one if not alike(one[name][others], other[name][others])] == [], t
    assert {event.env for event in sick.events("RolledBack")} <= {env}
    assert len(sick.epochs) == 2 * LENGTH
    assert all(math.isfinite(value) for value in sick.metrics[1].values())
    assert sick.metrics[1]["steps_done"] > 0
    assert all(leaf.isfinite().all() for leaf in leaves(sick.scheduler.learned).values())
    assert not any(epoch.step.report.rolled_back.any() for epoch in sick.epochs[LENGTH:])


def ended(sick, env):
    """Every epoch whose loss is no number is rolled back: a terminal with one penalty, and a new
    segment behind it.
    """
    column = SETUP.rule.components.index("governor")
    for t, epoch in enumerate(sick.epochs[:LENGTH]):
        back = epoch.step.report.rolled_back[env].item()
        assert back or epoch.step.validation.loss[env].isfinite()
        paid = epoch.step.score.components[env, column].item()
        assert paid == (-SETUP.rule.governor_penalty if back else 0.0)
        assert epoch.step.score.terminated[env].item() == (back or t == LENGTH - 1)
        if t + 1 < LENGTH:
            after = sick.epochs[t + 1].carry
            assert after.segment[env].item() == back
            assert not back or not any(leaf[env].any() for leaf in after.memory.values())
            observed = leaves(after.inputs.observation).values()
            assert not back or all(leaf.isfinite().all() for leaf in observed)
    reported = [(event.round, event.epoch) for event in sick.events("RolledBack")]
    assert reported == [
        (0, t) for t in range(LENGTH) if sick.epochs[t].step.report.rolled_back[env]
    ]


def legal(epoch):
    """Return whether the masks allow every action."""
    masks, (op, slot) = epoch.inputs.masks, epoch.choice.action[:, :2].unbind(-1)
    row = torch.arange(len(op))
    return masks.op[row, op] & ((op == 0) | masks.slot[row, op, slot])


@few
@pytest.mark.parametrize("target", IN_STATE)
@given(value=bad_values, at=moments, env=st.integers(0, ENVS - 1))
def test_a_fault_in_the_state_of_an_env_stays_there(calm, target, value, at, env):
    change = lambda t, state: IN_STATE[target](state, env, value) if t == at else state
    sick = Run(SETUP, change).rounds(2)
    contained(calm, sick, env)
    ended(sick, env)
    assert all(legal(epoch).all() for epoch in sick.epochs)


def fed(env, value, since):
    """A patch of what an env is trained on, in the first round from an epoch on."""
    when, epoch_of, batch_of = [], Feed.epoch, Feed.batch

    def epoch(self, state):
        when[:] = [int(state.clock.episode[0]), int(state.clock.epoch[0])]
        return epoch_of(self, state)

    def batch(self, draws, minibatch):
        found = batch_of(self, draws, minibatch)
        sick = when[0] == 0 and when[1] >= since
        return found.replace(inputs=only(env, found.inputs, value)) if sick else found

    return patch.multiple(Feed, epoch=epoch, batch=batch)


@few
@given(value=bad_values, since=moments, env=st.integers(0, ENVS - 1))
def test_a_fault_in_the_data_of_an_env_stays_there(calm, value, since, env):
    sick = Run(SETUP).rounds(2, fed(env, value, since))
    contained(calm, sick, env)
    ended(sick, env)
    starved = [
        epoch.step.metrics.skipped[env].item() == SETUP.spec.data.minibatches
        for epoch in sick.epochs[:LENGTH]
    ]
    assert math.isfinite(value) or starved == [t >= since for t in range(LENGTH)]
    back = [epoch.step.report.rolled_back[env].item() for epoch in sick.epochs[:LENGTH]]
    assert math.isfinite(value) or any(back) == (since < LENGTH - 1), (
        "two consecutive starved epochs are a panic"
    )


def shown(value, env, at):
    """A patch of what is observed of an env, None for all, in an epoch of the first round, None for
    always.
    """

    def broken(round, epoch, found):
        names = ("env", "instance", "slots") if at is None or (round, epoch) == (0, at) else ()
        return found.replace(**{name: only(env, getattr(found, name), value) for name in names})

    return seen(broken)


@few
@needs_extra("details")
@given(value=bad_values, at=moments, env=st.integers(0, ENVS - 1))
def test_a_fault_in_what_an_env_shows_to_the_policy_stays_there(calm, value, at, env):
    sick = Run(SETUP).rounds(2, shown(value, env, at))
    contained(calm, sick, env)
    assert all(legal(epoch).all() for epoch in sick.epochs)
    chosen = [
        torch.cat((epoch.choice.log_prob[env], epoch.choice.value[[env]]))
        for epoch in sick.epochs[:LENGTH]
    ]
    lost = [not numbers.isfinite().all() for numbers in chosen]
    reported = [
        (event.epoch, event.env)
        for event in sick.events("AnomalySeen")
        if "policy" in event.data.faults
    ]
    assert reported == [(t, env) for t in range(LENGTH) if lost[t]]
    assert sick.metrics[0]["nonfinite.rollout"] == any(lost)


# --- the policy
#
# ----------------------------------------------------------------------------


def learned(run):
    """Bytes of the policy and of its optimiser."""
    learner = run.scheduler.learned
    parts = {
        "net": learner.params["net"],
        "offset": learner.params["value_offset"],
        "optimiser": learner.optimiser,
    }
    return {
        path: leaf.numpy().tobytes()
        for path, leaf in leaves({**parts, "scale": learner.return_scale}).items()
    }


def broken_policy(run, leaf, value, at):
    """A change before an epoch: one number of the policy is lost."""

    def change(t, state):
        if t == at:
            learner = run.scheduler.learned
            net = learner.params["net"].clone()
            net[leaf][(0,) * net[leaf].dim()] = value
            run.scheduler.learned = learner.replace(params=learner.params.replace(net=net))
            run.scheduler.params = run.scheduler.learned.params
        return state

    run.change = change


LEAVES = ("base.in.weight", "core.w_hh", "op.out.weight", "leaf.out.bias", "value.out.weight")


@fewer
@given(leaf=st.sampled_from(LEAVES), value=bad_values, at=moments)
def test_a_broken_policy_acts_legally_takes_no_step_and_ends_the_run_after_three_rounds(
    leaf, value, at
):
    run = Run(SETUP)
    broken_policy(run, leaf, value, at)
    before = learned(run.rounds(1))
    with pytest.raises(
        TrainingDiverged, match="took no step in 3 consecutive rounds, the last of them round 3"
    ):
        run.rounds(2)
    assert [found["skip_streak"] for found in run.metrics] == [1, 2, 3]
    assert [found["steps_done"] for found in run.metrics] == [0, 0, 0]
    assert learned(run) == before
    assert all(legal(epoch).all() for epoch in run.epochs)
    assert not any(epoch.step.report.rolled_back.any() for epoch in run.epochs), (
        "hosts have nothing to do with it"
    )
    assert all(leaf.isfinite().all() for leaf in leaves(run.epochs[-1].after).values())
    assert [event.data.skip_streak for event in run.events("PpoUpdated")] == [1, 2, 3]


def test_an_observation_that_is_lost_for_all_envs_teaches_nothing_and_ends_the_run():
    run = Run(SETUP)
    before = learned(run)
    with pytest.raises(TrainingDiverged, match="4 of 4 envs had non-finite or huge rewards"):
        run.rounds(3, shown(torch.nan, None, None))
    assert learned(run) == before
    assert all(leaf.isfinite().all() for leaf in leaves(run.scheduler.learned).values())
    assert all(legal(epoch).all() for epoch in run.epochs)


@fewer
@given(name=st.sampled_from(("m", "v")), leaf=st.sampled_from(LEAVES), value=bad_values)
def test_a_broken_optimiser_of_the_policy_writes_nothing_into_it(name, leaf, value):
    run = Run(SETUP).rounds(1)
    learner = run.scheduler.learned
    assert learner is not None
    optimiser = learner.optimiser.clone()
    optimiser[name, leaf][(0,) * optimiser[name, leaf].dim()] = value
    run.scheduler.learned = learner.replace(optimiser=optimiser)
    before = learned(run)
    run.rounds(1)
    assert run.metrics[-1]["steps_done"] == 0
    assert run.metrics[-1]["nonfinite.step"] > 0
    assert learned(run) == before
