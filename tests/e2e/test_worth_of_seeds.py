"""Measured worth of seeds, in real epochs on real digits."""

import functools

import pytest
import torch
from support.small_runs import live, tiny_setup, world_of

from morphogen.config.groups import AttributionSpec
from morphogen.vocab.stage import Stage

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
