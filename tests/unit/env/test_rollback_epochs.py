"""Numbers that are no numbers, put into real epochs: who is rolled back, when, and what is seen
next.
"""

import pytest
import torch
from support.declared_actions import declared
from support.manual_gates import by_hand
from support.small_runs import live, tiny_setup, world_of

from morphogen.config.groups import GovernorSpec
from morphogen.data.feed import Feed
from morphogen.rules.legality import action_masks
from morphogen.testing.builders.scenes import make_slots
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.stage import Panic, Stage

S = Stage
SICK, LENGTH = 1, 7
HERE = {"slot": "r0c1"}
STEPS = [  # BLENDING from epoch 2 on
    {"epoch": 0, "op": "GERMINATE", "blueprint": "conv_light", **HERE},
    {"epoch": 1, "op": "ADVANCE", **HERE},
    {"epoch": 2, "op": "ADVANCE", **HERE},
]


@pytest.fixture
def world():
    return grown()


def grown(**fields):
    """Three envs on their way, each with a seed that is being blended in from epoch 2 on."""
    life = by_hand(min_training_epochs=1, min_gradient_health=0.0)
    setup = tiny_setup(envs=3, episode_length=LENGTH, lifecycle=life, **fields)
    return world_of(setup, control=declared(setup.spec, STEPS))


def played(world, change=None):
    return live(world, change=change)


def lost(rows):
    """The rows of the sick env without a number in them."""
    sick = (torch.arange(len(rows)) == SICK).view(-1, *[1] * (rows.dim() - 1))
    return torch.where(sick, torch.nan, rows)


def host(t, state):
    return state.replace(host=state.host.replace(params=lost(state.host.params)))


def seed(t, state):
    seeds = state.seeds.clone()
    seeds["r0c1", "params"] = lost(seeds["r0c1", "params"])
    return state.replace(seeds=seeds)


def at(epoch, change):
    return lambda t, state: change(t, state) if t == epoch else state


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [0, 3, LENGTH - 1])
def test_a_rollback_in_the_first_a_middle_or_the_last_epoch_works_alike(world, epoch):
    calm, epochs = played(world), played(world, at(epoch, host))
    for t, now in enumerate(epochs):
        assert now.step.report.rolled_back.tolist() == [False, t == epoch, False]
        ends = t == LENGTH - 1
        assert now.step.score.terminated.tolist() == [ends, ends or t == epoch, ends]
        others = (part.after.host.params[[0, 2]] for part in (now, calm[t]))
        torch.testing.assert_close(*others, rtol=0, atol=0 if t <= epoch else 1e-4)
    names = world.setup.rule.components
    paid = torch.stack([now.step.score.components[:, names.index("governor")] for now in epochs])
    assert (paid != 0).nonzero().tolist() == [[epoch, SICK]]
    back = epochs[epoch]
    assert trees_equal(back.after.host[SICK], back.before.governor.host[SICK])
    assert not (
        (back.after.slots.stage[SICK] >= S.GERMINATED) & (back.after.slots.stage[SICK] <= S.HOLDING)
    ).any()


@pytest.mark.parametrize("change", [host, seed])
def test_a_lost_host_or_blended_seed_is_gone_before_anything_is_observed_or_chosen(world, change):
    epochs = played(world, at(4, change))
    assert epochs[4].before.slots.stage[SICK, 1] == S.BLENDING
    assert epochs[4].step.report.panic.tolist() == [Panic.NONE, Panic.NONFINITE, Panic.NONE]
    seen_next(epochs[5], world)


def seen_next(epoch, world):
    """The epoch after a rollback: what is observed is finite, and the masks fit slots
    without a live seed.
    """
    observed = epoch.inputs.observation
    assert all(leaf.isfinite().all() for leaf in (observed.env, observed.instance, observed.slots))
    assert observed.finite.all()
    stages = epoch.before.slots.stage[SICK].tolist()
    assert stages == [S.DORMANT, S.PRUNED, S.DORMANT]
    bare = make_slots([[{"stage": stage} for stage in stages]])
    masks = action_masks(epoch.before.slots, world.setup.limits)
    assert trees_equal(masks[SICK : SICK + 1], action_masks(bare, world.setup.limits))


@pytest.fixture
def broken_batches(monkeypatch):
    """From epoch 4 on, the images of the sick env are no numbers."""
    real = Feed.batch

    def batch(self, draws, minibatch):
        found = real(self, draws, minibatch)
        return found.replace(inputs=lost(found.inputs)) if self.__dict__.get("broken") else found

    monkeypatch.setattr(Feed, "batch", batch)

    def start(t, state, feed):
        feed.__dict__["broken"] = t >= 4
        return state

    return start


def test_batches_that_are_no_numbers_are_skipped_and_the_observation_stays_finite(
    world, broken_batches
):
    """An epoch without one applied step is an anomaly, and no panic by itself: the seeds stay."""
    epochs = played(world, lambda t, state: broken_batches(t, state, world.feed))
    for now in epochs[4:]:
        assert now.step.metrics.skipped.tolist() == [0, world.setup.spec.data.minibatches, 0]
        assert now.step.report.anomaly.tolist() == [Panic.NONE, Panic.STARVED, Panic.NONE]
        assert all(
            leaf.isfinite().all()
            for leaf in (now.inputs.observation.env, now.inputs.observation.slots)
        )
    for now in epochs[4:-1]:
        assert torch.equal(now.after.host.params[SICK], epochs[3].after.host.params[SICK])
    assert [now.step.report.rolled_back[SICK].item() for now in epochs] == [False] * 6 + [True]


def test_where_one_starved_epoch_is_a_panic_the_seeds_go_with_it(broken_batches):
    world = grown(governor=GovernorSpec(panics=1))
    epochs = played(world, lambda t, state: broken_batches(t, state, world.feed))
    assert epochs[4].step.report.panic.tolist() == [Panic.NONE, Panic.STARVED, Panic.NONE]
    seen_next(epochs[5], world)
