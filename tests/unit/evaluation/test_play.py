"""Evaluations: the same worlds for every arm, what is measured of them, and the command that writes
it.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.extras import needs_extra
from support.ledgers import expected_ledger
from support.manual_gates import by_hand
from support.small_runs import live, tiny, tiny_setup, world_of

import morphogen as mg
from morphogen.config.parts import ARMS
from morphogen.config.task import TASKS
from morphogen.data.instances import TRAINING_INSTANCES
from morphogen.device.transfers import Transfers
from morphogen.env.episodes import fetch_traces, run_episodes
from morphogen.env.policies import Greedy, build_arm
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import open_arms
from morphogen.evaluation.play import play_arm
from morphogen.log.round_summary import running_value
from morphogen.vocab.blueprint import Blueprint


def played(setup, name, episodes=3, **knobs):
    with torch.no_grad():
        fences = Transfers(setup.device, time.perf_counter)
        return play_arm(
            setup, fences, build_arm(name, setup), name=name, episodes=episodes, **knobs
        ), fences


def test_a_host_that_is_left_alone_costs_what_it_is_made_of():
    found, _ = played(tiny_setup(), "wait")
    assert (found.param_epochs == 6 * found.params).all()
    assert found.minibatches.tolist() == [6 * 2] * 3
    assert (found.traces.fossil_blueprint == -1).all()
    assert found.traces.network_value.shape == found.traces.cost.shape == (6, 3)
    assert (found.traces.network_value[-1] == found.network_value).all()
    assert (found.traces.cost == np.arange(1, 7)[:, None] * found.params).all()
    assert found.seconds > 0


@needs_extra("schedules")
@pytest.mark.slow
def test_what_is_kept_is_told_by_slot_and_its_training_is_paid_for():
    setup = tiny_setup(policy_name="full_cycle", episode_length=20, envs=2, lifecycle=by_hand())
    found, _ = played(setup, "full_cycle", 2)
    host, _ = played(setup, "wait", 2)
    slots = len(setup.net.slots)
    assert (
        found.traces.fossil_blueprint.tolist() == [[int(Blueprint.NORM), *[-1] * (slots - 1)]] * 2
    )
    added = found.params - host.params
    assert (added == setup.net.counts[0][Blueprint.NORM]).all()
    spent = np.diff(found.traces.cost - host.traces.cost, axis=0)
    assert (spent[-1] == added).all()
    assert (found.param_epochs - host.param_epochs <= 20 * added).all()


@pytest.mark.slow
def test_every_arm_meets_the_same_instances_and_those_of_training_are_others():
    setup = tiny_setup()
    (wait, _), (random, _), (again, _) = (
        played(setup, name, 5) for name in ("wait", "random", "wait")
    )
    assert (wait.traces.network_value == again.traces.network_value).all()
    assert (wait.params / wait.params_ratio == random.params / random.params_ratio).all()
    assert (wait.traces.network_value[0] == random.traces.network_value[0]).all(), (
        "nothing runs before it was germinated"
    )
    other, _ = played(setup, "wait", 5, split=TRAINING_INSTANCES)
    assert (other.network_value != wait.network_value).any()


@pytest.mark.slow
def test_an_evaluation_is_one_crossing_whatever_it_plays():
    _, fences = played(tiny_setup(), "random", 7)
    assert fences.ledger == expected_ledger(rounds=0, epochs=0, evaluated_epochs=2 * 6, result=1)


@needs_extra("schedules")
@pytest.mark.slow
def test_an_arm_that_the_run_cannot_follow_is_refused_before_any_arm_is_played():
    setup = tiny_setup(episode_length=6)
    with pytest.raises(ConfigError, match="full_cycle"):
        open_arms(["wait", "full_cycle"], setup)


@pytest.mark.slow
def test_a_policy_plays_with_its_first_parameters_and_greedily_if_asked():
    env = mg.make("tiny", envs=8, seed=0, instances="held-out")
    arm = mg.build_arm("ppo", env.setup)
    drawn = mg.play(env, arm.policy)
    assert drawn.policy == "NetworkPolicy"
    assert np.array_equal(drawn.network_value, mg.play(env, "ppo").network_value)
    calm = mg.play(env, arm, greedy=True)
    assert not np.array_equal(calm.network_value, drawn.network_value)
    assert np.array_equal(
        calm.network_value, mg.play(env, arm._replace(policy=Greedy(arm.policy))).network_value
    )
    with pytest.raises(
        ConfigError,
        match=r"arm: expected one of ppo, wait, .*, reactive:FILE, .*or trained:PATH",
    ):
        mg.play(env, "waits")
    with pytest.raises(
        ConfigError, match=r"arm: expected a name, an Arm or a Policy, got \['wait'\]"
    ):
        mg.play(env, ["wait"])


def test_arms_are_played_in_python_beside_one_that_was_played():
    spec = tiny(episode_length=8, envs=4)
    env = mg.make(spec, instances="held-out")
    grown = mg.play(env, "random")
    results = mg.play_arms(env, ("wait",), {"grown": grown})
    assert list(results) == ["grown", "wait"]
    assert np.array_equal(results["wait"].network_value, mg.play(env, "wait").network_value)
    assert repr(results["wait"]).startswith("ArmResult(wait: network value 0.")
    with pytest.raises(
        ConfigError, match=r'arms: expected wait, random, .*, reactive:FILE, .*, got "nobody"'
    ):
        mg.play_arms(env, ("nobody",))
    with pytest.raises(ConfigError, match="env: expected one with held-out instances, got"):
        mg.play_arms(mg.make(spec), ("wait",))
    assert "network value" in results["wait"].table_row(grown, seed=0)


def test_an_arm_of_a_package_gets_the_results_so_far():
    env = mg.make("tiny", envs=4, episode_length=3, instances="held-out")

    def play(context, episodes, results):
        assert (context.setup, episodes, list(results)) == (env.setup, 4, ["grown"])
        return replace(results["grown"], policy="twice")

    ARMS.register("again", play)
    results = mg.play_arms(env, ("again",), {"grown": mg.play(env, "random")})
    assert results["again"].policy == "twice"
    with pytest.raises(ConfigError, match=r"arms: expected .*, again, .*, got \"again:x\""):
        mg.play_arms(env, ("again:x",))


def test_traces_of_an_episode_are_those_of_its_epochs():
    world = world_of(tiny_setup())
    epochs = live(world, "random")
    policy = build_arm("random", world.setup).policy
    traces = fetch_traces(world.transfers, [run_episodes(world, *world.reset(0), policy)])
    assert traces.network_value.tolist() == [
        epoch.step.score.network_value.tolist() for epoch in epochs
    ]
    trained = sum(epoch.step.host_params + epoch.step.seed_params.sum(-1) for epoch in epochs)
    assert traces.cost[-1].tolist() == trained.tolist()


# the anytime value


@pytest.fixture(scope="module")
def anytime():
    """Twins of a task whose networks count in every epoch, and only at the end; one seed in each
    host, pruned late.
    """
    task = replace(TASKS["tiny"], instance=mg.InstanceSpec(param_price=(0.4, 0.4)), defaults={})
    settings = {
        "envs": 4,
        "episode_length": 12,
        "data": {"batch": 8, "minibatches": 2},
        "reward": {"rule": "anytime"},
        "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    }
    return [
        mg.make(
            mg.RunSpec(
                task=replace(task, name=f"tiny-{objective}", objective=objective), **settings
            )
        )
        for objective in ("anytime", "delivered")
    ]


@pytest.mark.slow
def test_the_anytime_value_is_the_mean_over_the_epochs_of_what_is_in_use_less_what_exists(anytime):
    env, _ = anytime
    state, _ = env.reset()
    worth, paid = [], []
    germinate = mg.actions.build(env, "GERMINATE", slot="r0c0", blueprint="conv_heavy")
    for epoch in range(env.horizon):
        state, step = env.step(state, germinate if epoch == 1 else mg.actions.wait(env))
        price = state.instance.param_price * step.score.live_params / env.rule.terms.param_budget
        worth.append(state.signals.val_acc / 100 - price)
        torch.testing.assert_close(step.score.network_value, worth[-1])
        paid.append(step.reward)
    assert not torch.equal(worth[0], worth[-1])
    torch.testing.assert_close(sum(paid), torch.stack(worth).mean(dim=0))
    played = mg.play(env, "random")
    rows = played.traces.network_value
    assert played.network_value.tolist() == pytest.approx(rows.mean(axis=0).tolist())
    assert repr(played).startswith("ArmResult(random: anytime value")
    assert "anytime value" in played.table_row(played, seed=0)


@pytest.mark.slow
def test_the_objective_changes_what_an_episode_is_worth_and_nothing_else(anytime):
    first, second = (mg.play(env, "random") for env in anytime)
    assert np.array_equal(first.traces.accuracy, second.traces.accuracy)
    assert np.array_equal(first.params, second.params)
    assert (first.network_value != second.network_value).all()


@given(st.integers(1, 9), st.integers(1, 3))
def test_a_value_runs_over_the_epochs_so_far(epochs, envs):
    rows = np.arange(epochs * envs, dtype=np.float32).reshape(epochs, envs)
    assert running_value(rows, "delivered") is rows
    found = running_value(rows, "anytime")
    for epoch in range(epochs):
        assert found[epoch].tolist() == pytest.approx(rows[: epoch + 1].mean(axis=0).tolist())
    assert found.dtype == rows.dtype
