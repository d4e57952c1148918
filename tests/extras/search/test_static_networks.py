"""Static networks: planted networks equal grown ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.manual_gates import by_hand
from support.slot_invariants import broken_invariants
from support.small_runs import QUICK, context_of, tiny_setup, world_of

from morphogen.config.instance_spec import InstanceSpec
from morphogen.env.environment import open_environment
from morphogen.env.episodes import fetch_traces, first_carry, run_episodes, run_epoch
from morphogen.env.policies import build_arm
from morphogen.errors import ConfigError
from morphogen.evaluation.play import build_result
from morphogen.extras.schedules.action_schedule import dump_schedule
from morphogen.extras.search import instance_sets
from morphogen.extras.search.candidates import GrowthStep, build_schedule
from morphogen.extras.search.instance_sets import build_schedules_control, held_out_instance_sets
from morphogen.extras.search.oracle import play_best_schedules, play_oracle_arm
from morphogen.extras.search.replays import (
    first_epoch_at_cost,
    play_static_cost_arm,
    start_with_fossils,
    train_grown_networks,
)
from morphogen.rules.counts import seed_params
from morphogen.state.schema import SLOTS
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.action import Style, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Stage

NORM = int(Blueprint.NORM)
LIGHT = int(Blueprint.CONV_LIGHT)
# what depends on when and how a seed came, or on what was measured on the way
LEFT_BY_LIFECYCLES = {
    "previous_epochs_in_stage",
    "epochs_in_stage",
    "age",
    "tempo",
    "blend_curve",
    "alpha_curve",
    "alpha_steps",
    "alpha_done",
    "accuracy_at_germination",
    "accuracy_at_stage_start",
    "accuracy_at_blending",
    "accuracy_at_blending_valid",
    "gradient_norm",
    "gradient_health",
    "vanishing",
    "exploding",
    "gradient_valid",
    "gradient_ratio",
    "gradient_ratio_valid",
    "contribution",
    "contribution_valid",
    "velocity",
    "velocity_valid",
    "since_measured",
    "interaction_sum",
    "boost_received",
    "interaction_valid",
}


def control_of(setup, candidate, envs):
    return build_schedules_control([build_schedule(candidate, setup.spec)] * envs, setup)


def grown(setup, candidate):
    """Traces of three held-out episodes under one schedule."""
    [instances] = held_out_instance_sets(setup.spec, 3)
    world = instances.open(context_of(setup), control_of(setup, candidate, 3))
    return traces_of(world, instances.episode)


def traces_of(world, episode=0):
    """Traces of an episode."""
    return fetch_traces(world.transfers, [run_episodes(world, *world.reset(episode))])


def test_a_planted_slot_is_that_of_a_grown_one_but_for_the_traces_of_its_life():
    setup = tiny_setup(episode_length=9, lifecycle=QUICK)
    candidate = (GrowthStep(0, "r0c1", Blueprint.NORM, style=Style.GATED_GATE),)
    world = world_of(setup, control=control_of(setup, candidate, 4))
    policy = build_arm("random", setup).policy
    params = policy.init(world.keys[0])
    carry = first_carry(world, policy)
    with torch.no_grad():
        for _ in range(9):
            carry, _ = run_epoch(world, policy, params, carry)
    state = carry.state
    assert (state.slots.stage[:, 1] == int(Stage.FOSSILIZED)).all()
    copy, _ = start_with_fossils(world, 0, state.slots.blueprint, state.slots.algorithm)
    assert broken_invariants(copy.slots) == []
    for name in {leaf.name for leaf in SLOTS} - LEFT_BY_LIFECYCLES:
        assert torch.equal(getattr(copy.slots, name), getattr(state.slots, name)), name
    sizes = [
        seed_params(one.slots, setup.net.counts, setup.net.gate_counts) for one in (copy, state)
    ]
    assert torch.equal(*sizes)


def test_a_planted_seed_starts_as_one_that_is_germinated_in_the_first_epoch():
    setup = tiny_setup(episode_length=9, lifecycle=by_hand())
    candidate = (GrowthStep(0, "r0c0", Blueprint.CONV_LIGHT),)
    world = world_of(setup)
    blueprint = torch.tensor([[LIGHT, -1, -1]]).expand(4, -1)
    copy, _ = start_with_fossils(
        world, 0, blueprint, torch.where(blueprint >= 0, int(Algorithm.ADD), 0)
    )
    world = world_of(setup, control=control_of(setup, candidate, 4))
    policy = build_arm("random", setup).policy
    params = policy.init(world.keys[0])
    _, first = run_epoch(world, policy, params, first_carry(world, policy))
    assert torch.equal(copy.seeds["r0c0", "params"], first.after.seeds["r0c0", "params"])
    assert copy.seeds["r0c0", "params"].any(-1).all()
    assert torch.equal(copy.host.params, first.before.host.params)
    assert trees_equal(copy.governor.slots, copy.slots)


def train_again(setup, fossil_blueprint, algorithm, context=None):
    traces = SimpleNamespace(fossil_blueprint=fossil_blueprint, algorithm=algorithm)
    results = {"trained": SimpleNamespace(traces=traces)}
    return train_grown_networks(context or context_of(setup), len(algorithm), results)


def at_equal_cost(setup, traces):
    """The arm that stops where the grown networks stopped."""
    known = {"trained": build_result(setup, traces, name="trained", seconds=0.0)}
    return play_static_cost_arm(context_of(setup), len(traces.fossil_blueprint), known)


def test_bare_hosts_are_replayed_to_the_bit_and_cost_what_they_cost():
    setup = tiny_setup()
    traces = grown(setup, ())
    again = train_again(setup, traces.fossil_blueprint, traces.algorithm)
    assert (again.network_value == traces.network_value).all()
    assert (again.cost == traces.cost).all()
    assert (first_epoch_at_cost(again, traces.cost[-1]) == setup.spec.episode_length - 1).all()
    assert (at_equal_cost(setup, traces).network_value == traces.network_value[-1]).all()


@pytest.mark.slow
def test_networks_are_replayed_in_their_own_worlds_whole_from_the_first_epoch_on():
    setup = tiny_setup(episode_length=10, lifecycle=QUICK, envs=2)
    spec = setup.spec
    candidates = [(), (GrowthStep(3, "r0c0", Blueprint.NORM, Tempo.FAST, Style.LINEAR_MULTIPLY),)]
    idle = np.int64([[-1] * 3])
    one = np.int64([[NORM, -1, -1]])
    kept = np.concatenate([idle, one, one, idle, one])
    algorithm = np.where(kept >= 0, int(Algorithm.MULTIPLY), 0)
    again = train_again(setup, kept, algorithm)
    assert again.network_value.shape == (10, 5)
    assert (again.fossil_blueprint == kept).all()
    assert (again.algorithm == algorithm).all()
    instances = held_out_instance_sets(spec, 5)[1]
    control = build_schedules_control(
        [build_schedule(candidate, spec) for candidate in reversed(candidates)], setup
    )
    world = instances.open(context_of(setup), control)
    traces = traces_of(world, instances.episode)
    assert (traces.fossil_blueprint == kept[2:4]).all()
    assert (traces.host_params == again.host_params[2:4]).all()
    assert (traces.fossil_params == again.fossil_params[2:4]).all()
    assert (
        traces.trained_params[:3, 0].max()
        < again.trained_params[0, 2]
        == traces.trained_params[-1, 0]
    )
    assert traces.network_value[:, 1] == pytest.approx(again.network_value[:, 3], abs=1e-6)


@pytest.mark.slow
def test_the_cost_of_growing_is_reached_sooner_by_the_whole_network_and_never_too_late():
    setup = tiny_setup(episode_length=10, lifecycle=QUICK)
    traces = grown(setup, (GrowthStep(4, "r1c0", Blueprint.CONV_HEAVY),))
    again = train_again(setup, traces.fossil_blueprint, traces.algorithm)
    column = range(3)
    epoch = first_epoch_at_cost(again, traces.cost[-1])
    assert (epoch < 9).all()
    assert (again.cost[epoch, column] >= traces.cost[-1]).all()
    assert (again.cost[epoch - 1, column] < traces.cost[-1]).all()
    assert (at_equal_cost(setup, traces).network_value == again.network_value[epoch, column]).all()


def priced(price):
    return tiny_setup(
        episode_length=8, lifecycle=QUICK, envs=3, instance=InstanceSpec(param_price=(price, price))
    )


CANDIDATES = [
    (),
    (GrowthStep(0, "r0c0", Blueprint.CONV_HEAVY),),
    (GrowthStep(0, "r1c0", Blueprint.NORM),),
]


@pytest.mark.slow
def test_the_oracle_plays_its_picks_in_the_worlds_of_an_evaluation(tmp_path):
    setup = priced(0.0)
    schedules = [build_schedule(candidate, setup.spec) for candidate in CANDIDATES]
    pick, found = play_best_schedules(context_of(setup), schedules, 3)
    results = {}
    for k, candidate in enumerate(CANDIDATES):
        traces = grown(setup, candidate)
        mine = pick == k
        assert traces.network_value[:, mine] == pytest.approx(
            found.network_value[:, mine], abs=1e-6
        )
        assert (traces.fossil_blueprint[mine] == found.fossil_blueprint[mine]).all()
        file = tmp_path / f"{k}.json"
        file.write_text(dump_schedule(schedules[k], setup.spec))
        results[f"schedule:{file}"] = build_result(setup, traces, name="any", seconds=0.0)
    arm = play_oracle_arm(context_of(setup), 3, results)
    assert arm.policy == "oracle"
    assert (arm.traces.network_value == found.network_value).all()
    with pytest.raises(ConfigError, match="expected arms schedule:FILE before oracle, got none"):
        play_oracle_arm(context_of(setup), 3, {})
    file.write_text(file.read_text().replace('"epoch": 0,', '"env": 1, "epoch": 0,', 1))
    with pytest.raises(ConfigError, match="steps are for every env, got a step that names one"):
        play_oracle_arm(context_of(setup), 3, results)


@pytest.mark.slow
def test_the_oracle_does_not_try_schedules_in_the_world_that_it_is_judged_in(monkeypatch):
    setup = priced(0.1)
    played = []
    wanted = {int(word) for word in held_out_instance_sets(setup.spec, 3)[0].tasks[:, 0]}

    def noted(*args, **knobs):
        played.append((knobs["envs"], knobs.get("tasks")))
        return open_environment(*args, **knobs)

    monkeypatch.setattr(instance_sets, "open_environment", noted)
    schedules = [build_schedule(candidate, setup.spec) for candidate in CANDIDATES[1:]]
    play_best_schedules(context_of(setup), schedules, 3)
    *tried, judged = played
    assert len(tried) == 2
    for key, tasks in tried:
        assert tasks is not None
        assert not {int(word) for word in key[:, 0]} & wanted
    assert torch.equal(judged[0], held_out_instance_sets(setup.spec, 3)[0].tasks)
