"""Sibling worlds: the same instances under other hosts, batches and noise."""

import torch
from support.extras import needs_extra
from support.small_runs import cifar_files, tiny, tiny_setup

from morphogen.config.groups import DataSpec
from morphogen.env.environment import open_environment
from morphogen.env.setup import build_setup
from morphogen.state import rng
from morphogen.testing.builders.tree_equality import trees_equal


def sibling(setup, number, *, envs=6):
    tasks = rng.env_keys(setup.spec.seed, 0, envs)
    return open_environment(setup, envs=rng.sibling_keys(tasks, number), tasks=tasks)


def test_siblings_share_every_leaf_of_their_instances_and_nothing_that_is_drawn_besides():
    setup = tiny_setup()
    worlds = [sibling(setup, number) for number in range(3)]
    states = [world.init_state(torch.full((6,), 5)) for world in worlds]
    for other in states[1:]:
        assert trees_equal(states[0].instance, other.instance)
        assert (states[0].host.params != other.host.params).any(-1).all()
    draws = [world.feed.epoch(state) for world, state in zip(worlds, states, strict=True)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (draws[one].index != draws[other].index).any(-1).all()


def test_the_sibling_of_number_zero_is_the_world_itself():
    setup = tiny_setup()
    plain = open_environment(setup, envs=rng.env_keys(setup.spec.seed, 0, 6))
    episode = torch.full((6,), 2)
    assert trees_equal(plain.init_state(episode), sibling(setup, 0).init_state(episode))


@needs_extra("streaming")
@needs_extra("cifar")
def test_siblings_of_streamed_data_train_on_the_samples_of_their_own_draws(tmp_path):
    cifar_files(tmp_path)
    data = {"dir": str(tmp_path), "batch": 4, "minibatches": 2, "val_samples": 8}
    setups = [
        build_setup(tiny(task="cifar_minimal", data=DataSpec(placement=place, **data)))
        for place in ("resident", "streamed")
    ]
    worlds = [sibling(setup, 1, envs=3) for setup in setups]
    assert type(worlds[1].feed).__name__ == "StreamedFeed"
    images = []
    for world in worlds:
        state, _ = world.reset(1)
        world.feed.fetch()
        images.append(world.feed.batch(world.feed.epoch(state), torch.tensor([0])).inputs)
        world.close()
    assert torch.equal(*images)
