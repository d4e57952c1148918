"""What seeds are found to be worth, measured in real epochs on real digits."""

import pytest
import torch
from runs import live, tiny_setup, world_of

from morphogen.nets import plan as plans
from morphogen.nets.seeds import cnn
from morphogen.rules.attribution import coalitions
from morphogen.steps.attribute import attribute
from morphogen.steps.validate import validate
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.spec import DataSpec, HostSpec
from morphogen.vocab.stage import Algorithm, Stage


def measured(world, state):
    """Validation and attribution of a state as it is, outside an epoch."""
    setup = world.setup
    coalition, evaluated = coalitions(state.slots, torch.zeros(len(state.key), 2, 3), pairs=2)
    nobody = torch.zeros_like(state.slots.gradient_valid)
    counts = plans.plan_counts(state.slots, coalition, evaluated, nobody, net=setup.net)
    plan = plans.read_plan(counts.tolist(), setup.net)
    found = validate(state, setup.dataset.validation(), coalition, evaluated, plan, net=setup.net)
    knobs = {"every": 1, "episode_length": setup.spec.episode_length, "signal_spec": setup.spec.signal}
    return found, attribute(state, found, **knobs)[1]


def kept(state, setup, *, alpha, bend):
    """The state with an attention seed kept in r0c0; `bend(leaves)` writes its parameters."""
    s = setup.net.names.index("r0c0")
    here = (torch.arange(3) == s).expand_as(state.slots.stage)
    put = {"stage": Stage.FOSSILIZED, "blueprint": Blueprint.ATTENTION, "algorithm": Algorithm.ADD, "alpha": alpha}
    leaves = {k: torch.where(here, v if k == "alpha" else int(v), getattr(state.slots, k)) for k, v in put.items()}
    seeds = state.seeds.clone()
    layout = cnn.layout(Blueprint.ATTENTION, setup.net.slots[s].channels)
    bend(layout.split(seeds["r0c0", "params"][:, : layout.size]))
    return state.replace(slots=state.slots.replace(**leaves), seeds=seeds)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_difference_03_a_seed_that_multiplies_the_features_of_a_trained_host_by_three_is_worth_exactly_nothing(norm):
    data = DataSpec(batch=32, minibatches=14, val_samples=200)
    setup = tiny_setup(
        envs=3, episode_length=10, instances="single", data=data, host=HostSpec(norm=norm, lr=0.15, width=4)
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


def test_a_seed_that_does_nothing_has_contribution_zero():
    setup = tiny_setup(envs=3)
    world = world_of(setup)
    state = live(world, "wait")[-1].after
    _, worth = measured(world, kept(state, setup, alpha=1.0, bend=lambda leaves: None))
    assert worth.contribution[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert worth.shapley[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert worth.contribution_valid[:, 0].all()


def test_shapley_values_add_up_to_the_clean_improvement_in_every_epoch_of_a_run():
    epochs = live(world_of(tiny_setup(envs=16, episode_length=20)))
    players = sum(epoch.attribution.contribution_valid.sum().item() for epoch in epochs)
    assert players > 20, "some seeds were blended"
    for epoch in epochs:
        worth = epoch.attribution
        torch.testing.assert_close(worth.shapley.sum(-1), worth.clean_improvement, rtol=0, atol=1e-4)
