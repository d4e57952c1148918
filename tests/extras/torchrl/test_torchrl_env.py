"""The environment of TorchRL: its specs, resets of some envs, rollbacks, seeds, collectors, and
equal rewards.
"""

import pickle
from functools import partial

import pytest
import torch
from support.small_runs import tiny, tiny_setup, world_of
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
    check_env_specs,
)

import morphogen as mg
from morphogen.env import actions
from morphogen.extras.torchrl.env import MorphogenEnv, make_env
from morphogen.testing.builders.tree_equality import leaves, trees_equal
from morphogen.train.loop import Scheduler

TRANSFORMS = {
    "bare": lambda: None,
    "all": lambda: Compose(StepCounter(), RewardSum(), InitTracker()),
}


def small_env(**fields):
    return make_env("tiny", envs=4, seed=0, **{"episode_length": 5, **fields})


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("task", ["tiny", "digits"])
def test_the_specs_are_kept(task, transform):
    env = small_env() if task == "tiny" else MorphogenEnv(world_of(tiny_setup()))
    wrapped = transform()
    check_env_specs(env if wrapped is None else TransformedEnv(env, wrapped))


def test_the_specs_are_kept_after_a_reset_of_some_envs():
    env = TransformedEnv(small_env(), Compose(StepCounter(), RewardSum(), InitTracker()))
    td = env.rollout(3, break_when_any_done=False)[:, -1]["next"].clone()
    td["_reset"] = torch.tensor([True, False, False, True]).unsqueeze(-1)
    after = env.reset(td)
    assert after["step_count"].flatten().tolist() == [0, 3, 3, 0]
    check_env_specs(env)


def test_a_reset_by_mask_leaves_the_other_envs_bit_for_bit():
    env = MorphogenEnv(world_of(tiny_setup()))
    td = env.rollout(3, break_when_any_done=False)[:, -1]["next"].exclude("reward").clone()
    before, rows = env.state, torch.tensor([False, True, False, False])
    after = env.reset(td.clone().set("_reset", rows.unsqueeze(-1)))
    assert env.state.clock.epoch.tolist() == [3, 0, 3, 3]
    assert env.state.clock.episode.tolist() == [0, 1, 0, 0]
    pairs = zip(leaves(env.state[~rows]).values(), leaves(before[~rows]).values(), strict=True)
    assert all(torch.equal(now, old) for now, old in pairs)
    assert torch.equal(after["observation"][~rows], td["observation"][~rows])
    assert not torch.equal(after["observation"][rows], td["observation"][rows])


def test_an_env_that_was_rolled_back_goes_on_from_its_restored_state():
    env = MorphogenEnv(world_of(tiny_setup(episode_length=8)))
    env.rollout(2, break_when_any_done=False)
    params = env.state.host.params.clone()
    params[2] = torch.nan
    env.state = env.state.replace(host=env.state.host.replace(params=params))
    rolled = env.rollout(
        3, break_when_any_done=False, auto_reset=False, tensordict=env.fake_tensordict().zero_()
    )
    assert rolled["next", "terminated"].squeeze(-1).tolist() == [
        [r, False, False] for r in (False, False, True, False)
    ]
    assert env.state.clock.epoch.tolist() == [5] * 4
    assert env.state.clock.episode.tolist() == [0] * 4
    assert env.state.signals.rollbacks.tolist() == [0, 0, 1, 0]
    assert env.state.host.params.isfinite().all()


def test_rewards_and_states_are_those_of_the_scheduler():
    setup = tiny_setup(policy_name="random", rounds=1)
    scheduler = Scheduler(setup)
    run_epoch, epochs = scheduler.run_epoch, []

    def kept(carry, t):
        carry, epoch = run_epoch(carry, t)
        epochs.append(epoch)
        return carry, epoch

    scheduler.run_epoch = kept
    with torch.no_grad():
        scheduler.run()
    env = MorphogenEnv(mg.make(setup.spec))
    td = env.reset()
    for epoch in epochs:
        td["action"] = actions.to_heads(epoch.choice.action)
        td = env.step(td)["next"]
        assert torch.equal(td["reward"].squeeze(-1), epoch.step.reward)
        assert torch.equal(td["done"].squeeze(-1), epoch.step.terminated)
        assert trees_equal(env.state, epoch.after)


def test_one_step_crosses_once():
    env = small_env()
    env.rollout(5)
    assert {name: count for name, count in env.functional.ledger.items() if count} == {"plan": 5}


def test_a_seed_fixes_the_worlds_and_nothing_else():
    env = small_env()
    first = env.reset()["instance"].clone()
    env.set_seed(7)
    other = env.reset()["instance"].clone()
    env.set_seed(0)
    assert torch.equal(env.reset()["instance"], first)
    assert not torch.equal(first, other)
    torch.manual_seed(3)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    env.set_seed(5)
    assert torch.equal(torch.rand(2), drawn), "the generator of the caller is left alone"


def test_an_episode_follows_the_other_and_a_state_can_be_taken_up():
    env = small_env()
    td = env.rollout(5)
    assert td["next", "done"].squeeze(-1).sum(-1).tolist() == [1] * 4
    env.reset()
    assert env.state.clock.episode.tolist() == [1] * 4
    kept, action = env.state, env.rand_action(env.fake_tensordict().zero_())
    one = env.step(action.clone())["next"]
    env.state = kept
    two = env.step(action.clone())["next"]
    assert (one["observation"] == two["observation"]).all()


def test_a_step_past_the_horizon_leaves_the_envs_as_they_are():
    """As in environments of TorchRL, where a step of a finished env is no error."""
    env = small_env()
    td = env.rollout(5)
    assert td["next", "done"][:, -1].all()
    end = env.state
    for _ in range(2):
        late = env.step(env.rand_action(env.fake_tensordict().zero_()))["next"]
        assert trees_equal(env.state, end)
        assert late["done"].all()
        assert not late["reward"].any()
    assert torch.equal(late["observation"], td["next", "observation"][:, -1])
    env.reset()
    assert env.state.clock.epoch.tolist() == [0] * 4


def test_a_step_before_the_first_reset_is_refused():
    env = small_env()
    with pytest.raises(RuntimeError, match="call reset before step"):
        env.step(env.rand_action(env.fake_tensordict().zero_()))


@pytest.mark.slow
def test_a_collector_gathers_whole_episodes():
    build = partial(make_env, tiny(episode_length=5), seed=0)
    # collectors of several processes send it to them
    copied = pickle.loads(pickle.dumps(build))
    collector = Collector(copied, frames_per_batch=20, total_frames=80)
    batches = list(collector)
    collector.shutdown()
    assert [batch.numel() for batch in batches] == [20] * 4
    assert all(batch["next", "done"].sum() == 4 for batch in batches)
