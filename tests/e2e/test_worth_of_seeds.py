"""Measured worth of seeds, in real epochs on real digits."""

import functools

import pytest
import torch
from support.small_runs import live, tiny_setup, world_of

from morphogen.config.groups import AttributionSpec, DataSpec, HostSpec
from morphogen.hosts import plan as plans
from morphogen.hosts.cnn_seeds import ATTENTION
from morphogen.hosts.seed_module import seed_layout
from morphogen.rules.attribution import coalitions
from morphogen.steps.score_step import attribute
from morphogen.steps.validate_step import validate
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Stage


def measured(world, state):
    """Validation and attribution of a state as it is, outside an epoch."""
    setup = world.setup
    coalition, evaluated = coalitions(state.slots, torch.zeros(len(state.key), 2, 3), pairs=2)
    nobody = torch.zeros_like(state.slots.gradient_valid)
    counts = plans.plan_counts(state.slots, coalition, evaluated, nobody, net=setup.net)
    plan = plans.read_plan(counts.tolist(), setup.net)
    found = validate(state, setup.dataset.validation, coalition, evaluated, plan, net=setup.net)
    knobs = {
        "every": 1,
        "episode_length": setup.spec.episode_length,
        "signal_spec": setup.spec.signal,
    }
    return found, attribute(state, found, **knobs)[1]


def kept(state, setup, *, alpha, bend):
    """The state with an attention seed kept in r0c0; `bend(leaves)` writes its parameters."""
    s = setup.net.names.index("r0c0")
    here = (torch.arange(3) == s).expand_as(state.slots.stage)
    put = {
        "stage": Stage.FOSSILIZED,
        "blueprint": Blueprint.ATTENTION,
        "algorithm": Algorithm.ADD,
        "alpha": alpha,
    }
    leaves = {
        k: torch.where(here, v if k == "alpha" else int(v), getattr(state.slots, k))
        for k, v in put.items()
    }
    seeds = state.seeds.clone()
    layout = seed_layout(ATTENTION, setup.net.slots[s].channels)
    bend(layout.split(seeds["r0c0", "params"][:, : layout.size]))
    return state.replace(slots=state.slots.replace(**leaves), seeds=seeds)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_difference_03_a_seed_that_multiplies_the_features_of_a_trained_host_by_three_is_worth_exactly_nothing(
    norm,
):
    data = DataSpec(batch=32, minibatches=24, val_samples=200)
    setup = tiny_setup(
        envs=3,
        episode_length=10,
        instances="single",
        data=data,
        host=HostSpec(norm=norm, lr=0.1, width=4),
    )
    world = world_of(setup)
    state = live(world, "wait")[-1].after
    bare, _ = measured(world, state)
    assert (bare.accuracy[:, 0] > 25).all(), "the host has learned something to lose"
    # attention with b2 large: d = x, and alpha 2: y = h + 2 h
    tripled = kept(state, setup, alpha=2.0, bend=lambda leaves: leaves["b2"].fill_(40.0))
    found, worth = measured(world, tripled)
    assert worth.contribution[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert worth.contribution_valid[:, 0].all()
    torch.testing.assert_close(found.loss, bare.loss, rtol=0, atol=1e-2)


EPOCHS = 12


@functools.cache
def random_run(every: int):
    """Epochs of 16 envs under random actions, of which every n-th is measured."""
    return live(
        world_of(
            tiny_setup(envs=16, episode_length=EPOCHS, attribution=AttributionSpec(every=every))
        )
    )


def test_shapley_values_add_up_to_the_clean_improvement_in_every_epoch_of_a_run():
    epochs = random_run(1)
    players = sum(epoch.step.measured.contribution_valid.sum().item() for epoch in epochs)
    assert players > 20, "some seeds were blended"
    for epoch in epochs:
        worth = epoch.step.measured
        torch.testing.assert_close(
            worth.shapley.sum(-1), worth.clean_improvement, rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("every", [1, 3])
def test_a_contribution_is_fresh_iff_it_was_measured_in_this_epoch_and_kept_as_it_is_otherwise(
    every,
):
    for t, epoch in enumerate(random_run(every)):
        before, after, worth = (
            epoch.step.ticked.slots,
            epoch.step.governed.slots,
            epoch.step.measured,
        )
        assert worth.measured.all() == (
            (t + 1) % every == 0 or t == EPOCHS - 1 or not worth.forwards.gt(1).any()
        )
        seed = (after.stage >= Stage.BLENDING) & (after.stage <= Stage.FOSSILIZED)
        fresh = after.contribution_valid & (after.since_measured == 0)
        assert torch.equal(fresh, worth.contribution_valid & seed)
        kept = after.contribution_valid & ~fresh
        assert torch.equal(after.contribution[kept], before.contribution[kept])
        assert torch.equal(after.velocity[kept], before.velocity[kept])
        assert torch.equal(after.since_measured[kept], before.since_measured[kept] + 1)
        assert torch.equal(after.interaction_valid, worth.interaction_valid & seed)
