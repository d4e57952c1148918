"""The white-box task: its optimum is what the best policy earns, and nothing earns more."""

import json
import time
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.declared_actions import declared
from support.small_runs import tiny_setup

from morphogen.config.config_files import build_spec
from morphogen.config.spec import resolve, seed_timeline
from morphogen.device.transfers import Transfers
from morphogen.env.policies import Arm, build_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.play import play_arm, shares_of_optimum
from morphogen.extras.whitebox.formula import (
    BASE_POINTS,
    best_blueprint,
    first_useful_epoch,
    seed_gain,
)
from morphogen.extras.whitebox.optimum import optimal_returns
from morphogen.train.loop import Hooks, Parts
from morphogen.train.train import train_ppo_vectorized
from morphogen.vocab.action import Tempo
from morphogen.vocab.blueprint import Blueprint

EPISODES = 64


def setup_of(**settings) -> Setup:
    return build_setup(resolve(build_spec({"preset": "whitebox"}, settings)))


def fences(setup: Setup) -> Transfers:
    return Transfers(setup.device, time.perf_counter)


def played(setup: Setup, arm: Arm, episodes: int = EPISODES):
    """Network value per held-out episode."""
    with torch.no_grad():
        reported = play_arm(setup, fences(setup), arm, name="x", episodes=episodes)
    return reported.network_value


@cache
def preset() -> Setup:
    return setup_of()


@cache
def most():
    return optimal_returns(preset(), fences(preset()), EPISODES)


@cache
def earned(name: str):
    return played(preset(), build_arm(name, preset()))


def test_the_best_policy_earns_the_optimum_in_every_episode():
    assert earned("optimal") == pytest.approx(most(), abs=1e-5)
    assert (most() >= 0.2 - 1e-6).all()


@pytest.mark.parametrize("name", ["wait", "random", "heuristic"])
def test_no_baseline_earns_more_in_any_episode_and_all_earn_clearly_less(name):
    assert (earned(name) <= most() + 1e-5).all()
    assert earned(name).mean() < 0.6 * most().mean()


@pytest.mark.parametrize(
    "settings",
    [
        {"lifecycle": {"auto_forward": []}, "episode_length": 14},
        {"lifecycle": {"auto_forward": ["BLEND"], "min_training_epochs": 2}, "episode_length": 12},
        {"max_seeds": 0},
        {"blueprints": []},
        {"blueprints": ["conv_light", "norm"]},
        {"episode_length": 6},
        {"episode_length": 3},
        {"slots": ["r0c1", "r1c0"]},
        {"instance": {"param_price": [0.0, 0.0]}},
    ],
    ids=str,
)
def test_the_best_policy_earns_the_optimum_of_other_settings_too(settings):
    setup = setup_of(**settings)
    most = optimal_returns(setup, fences(setup), EPISODES)
    assert played(setup, build_arm("optimal", setup)) == pytest.approx(most, abs=1e-5)


def schedules(setup: Setup):
    """Every fixed plan of one seed that ends with it kept, and the one without."""
    spec = setup.spec
    yield []
    lasts = range(spec.episode_length - seed_timeline(spec, Tempo.FAST).fossilizing)
    for born, slot, kind in product(lasts, spec.slots, spec.blueprints):
        born_step = {
            "epoch": born,
            "op": "GERMINATE",
            "slot": slot,
            "blueprint": kind,
            "tempo": "FAST",
        }
        yield [
            born_step,
            {
                "epoch": born + seed_timeline(spec, Tempo.FAST).fossilizing,
                "op": "FOSSILIZE",
                "slot": slot,
            },
        ]


@pytest.mark.slow
def test_the_optimum_is_the_best_of_all_plans_when_they_are_played():
    setup = setup_of(
        envs=16, episode_length=6, instance={"label_noise": [0.0, 0.2]}, slots=["r0c0", "r0c1"]
    )
    best = torch.full((16,), -1.0, dtype=torch.float64).numpy()
    for steps in schedules(setup):
        control = declared(setup.spec, steps)
        best = best.clip(
            min=played(setup, build_arm("random", setup)._replace(control=control), episodes=16)
        )
    assert best == pytest.approx(optimal_returns(setup, fences(setup), 16), abs=1e-5)
    assert len(set(best.round(3).tolist())) > 4


def test_in_the_negative_task_the_best_policy_waits():
    setup = setup_of(task="negative")
    assert (optimal_returns(setup, fences(setup), EPISODES) == BASE_POINTS / 100).all()
    dearer = played(setup, build_arm("random", setup))
    assert (dearer <= BASE_POINTS / 100).all()
    assert dearer.mean() < 0


def test_growing_pays_for_some_instances_only_and_every_kind_and_time_is_asked_for():
    pays = most() > 0.2 + 1e-6
    assert 0.3 < pays.mean() < 0.9
    assert best_blueprint(torch.tensor([0.25, 0.5, 0.75, 1.0])).tolist() == [
        Blueprint.CONV_LIGHT,
        Blueprint.CONV_LIGHT,
        Blueprint.CONV_HEAVY,
        Blueprint.BOTTLENECK,
    ]
    assert first_useful_epoch(torch.tensor([0.0, 0.1, 0.31, 0.5])).tolist() == [0, 1, 3, 5]


hosts = st.tuples(st.sampled_from((0.5, 0.75, 1.0)), st.floats(0, 1, width=32))


@given(hosts, st.integers(0, 20))
def test_waiting_adds_nothing_once_the_host_is_ripe(host, born):
    width, noise = torch.tensor([host]).unbind(-1)
    kind = best_blueprint(width).unsqueeze(-1)
    now, later = (
        seed_gain(width, noise, kind, torch.tensor([[epoch]])) for epoch in (born, born + 1)
    )
    assert (now == 0) if born < first_useful_epoch(noise) else (later <= now)


def test_shares_are_of_the_mean_optimum_and_only_where_it_is_known():
    setup = setup_of(envs=8)
    arm = build_arm("optimal", setup)
    own = play_arm(setup, fences(setup), arm, name="optimal", episodes=12)
    half = replace(own, policy="half", network_value=own.network_value / 2)
    assert shares_of_optimum(setup, fences(setup), [own, half]) == pytest.approx(
        {"optimal": 1.0, "half": 0.5}, abs=1e-5
    )
    assert shares_of_optimum(tiny_setup(), fences(setup), [own]) == {}


def test_the_best_policy_of_another_task_is_not_known():
    with pytest.raises(ConfigError, match=r"task: expected whitebox, .* got digits"):
        build_arm("optimal", tiny_setup())


def test_the_best_policy_is_not_known_where_what_it_depends_on_is_hidden():
    setup = setup_of(envs=4, observe={"instance": ["param_price"]})
    with pytest.raises(
        ConfigError,
        match=r"observe.instance: expected label_noise, param_price, width .* got param_p",
    ):
        build_arm("optimal", setup)
    result = play_arm(setup, fences(setup), build_arm("wait", setup), name="wait", episodes=4)
    assert shares_of_optimum(setup, fences(setup), [result]) == {}


@pytest.mark.slow
def test_no_network_is_trained_and_none_is_asked():
    setup = setup_of(envs=4, rounds=1, final_episodes=0)
    scheduler_hosts = []
    with torch.no_grad():
        hooks = Hooks(on_round=lambda _, s: scheduler_hosts.append(s.state))
        train_ppo_vectorized(setup.spec, parts=Parts(hooks=hooks))
    (state,) = scheduler_hosts
    assert state.slots.stage.ne(1).any()
    assert state.host.momentum.eq(0).all()
    assert all(leaf.eq(0).all() for leaf in state.seeds.flatten_keys().values())


@pytest.mark.slow
def test_the_result_tells_the_share_of_every_policy(tmp_path):
    settings = {"rounds": 1, "envs": 8, "final_episodes": 8}
    spec = build_spec({"preset": "whitebox"}, settings)
    train_ppo_vectorized(spec, out=tmp_path / "run")
    reported = json.loads((tmp_path / "run" / "result.json").read_text())["share_of_optimal"]
    assert list(reported) == ["wait", "random", "heuristic", "optimal", "ppo"]
    assert reported["optimal"] == pytest.approx(1.0, abs=1e-5)
    assert max(reported.values()) == reported["optimal"]


@pytest.mark.parametrize("observed", [["param_price"], ["width", "label_noise", "param_price"]])
def test_it_has_no_samples_and_so_no_test_split(observed):
    setup = setup_of(observe={"instance": observed})
    select_split = pytest.importorskip("morphogen.extras.evaluate.evaluation").select_split
    with pytest.raises(
        ConfigError,
        match="--split: expected validation, because task whitebox has no samples, got test",
    ):
        select_split("test", setup)
    assert select_split("validation", setup) is setup


def test_it_has_no_activations_and_needs_no_pieces():
    assert preset().piece_envs == preset().spec.envs
