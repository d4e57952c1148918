"""Lives of envs whose hosts and seeds train by AdamW on a schedule, partly frozen."""

import pytest
import torch
from support.small_runs import QUICK

import morphogen as mg
from morphogen.env.setup import state_bytes
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.stage import Stage

MINIBATCHES = 3
HOST = {
    "lr": 0.01,
    "seed_lr": 0.01,
    "optimizer": "adamw",
    "schedule": "warmup_cosine",
    "freeze": ["block0.norm.weight", "head.*"],
}


def open_env(envs=4, host=None, **fields):
    sizes = {"data": {"batch": 8, "minibatches": MINIBATCHES, "val_samples": 32}}
    host = HOST if host is None else host
    return mg.make("tiny", envs=envs, seed=1, host=host, lifecycle=QUICK, **sizes, **fields)


def live(env, epochs):
    """Random actions: (state before, state after, step) per epoch."""
    state, seen = env.reset()
    for _ in range(epochs):
        after, step = env.step(state, mg.actions.random(env, state, seen))
        yield state, after, step
        state, seen = after, step.inputs


@pytest.mark.slow
def test_a_seed_counts_its_own_steps_from_birth_in_a_slot_that_had_others():
    """A slot that is pruned and grows again starts anew, with moments of its own."""
    env = open_env(8, episode_length=24)
    births = torch.zeros(8, len(env.net.slots), dtype=torch.int64)
    for before, after, step in live(env, 24):
        steps = torch.cat([after.seeds[name, "steps"] for name in env.net.names], dim=-1)
        old = torch.cat([before.seeds[name, "steps"] for name in env.net.names], dim=-1)
        born = (before.slots.stage == int(Stage.DORMANT)) & (
            step.acted.slots.stage == int(Stage.GERMINATED)
        )
        births += born
        assert steps[born].eq(MINIBATCHES).all()  # the gate of training opens at once
        grew = steps - torch.where(born, 0, old)
        held = after.slots.stage.ge(int(Stage.TRAINING)) & after.slots.stage.le(
            int(Stage.FOSSILIZED)
        )
        assert ((grew == MINIBATCHES) | (grew == 0))[held].all()  # a seed that fades takes none
        for s, name in enumerate(env.net.names):
            free = ~held[:, s]
            assert not any(leaf[free].any() for leaf in after.seeds[name].values())
    assert births.max() > 1


def test_a_rollback_restores_the_state_of_the_optimiser():
    env = open_env()
    state, _ = env.reset()
    for _ in range(env.spec.governor.snapshot_every):
        state, _ = env.step(state, mg.actions.wait(env))
    broken = state.host.params.clone()
    broken[1] = torch.nan
    kept = state.governor.host
    after, step = env.step(
        state.replace(host=state.host.replace(params=broken)), mg.actions.wait(env)
    )
    assert step.report.rolled_back.tolist() == [False, True, False, False]
    assert trees_equal(after.host[1], kept[1])
    assert kept.adaptive["steps"].eq(MINIBATCHES * env.spec.governor.snapshot_every).all()


def test_a_restart_begins_with_an_empty_state():
    env = open_env()
    *_, (_, state, _) = live(env, 2)
    again, _ = env.restart(state, torch.tensor([True, False, False, False]))
    assert not again.host.adaptive[0].any()
    assert trees_equal(again.host[1:], state.host[1:])


def test_the_memory_of_a_run_counts_the_second_moments():
    setups = [open_env(host=host).setup for host in ({}, HOST)]
    small, large = (state_bytes(setup.spec, setup.net) for setup in setups)
    assert large == 1.5 * small
