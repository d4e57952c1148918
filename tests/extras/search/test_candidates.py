"""Candidates for fixed schedules: which are possible, which are near, and what their schedules do
in a run.
"""

from dataclasses import replace

import pytest
from support.small_runs import BYHAND, QUICK, context_of, tiny, tiny_setup

from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import seed_timeline
from morphogen.config.task import TASKS
from morphogen.data.instances import HELD_OUT_INSTANCES, TRAINING_INSTANCES
from morphogen.env.environment import open_environment
from morphogen.env.episodes import fetch_traces, first_carry, run_episodes, run_epoch
from morphogen.env.policies import build_arm
from morphogen.extras.search.candidates import (
    GrowthStep,
    build_schedule,
    initial_candidates,
    is_feasible,
    neighbours,
)
from morphogen.extras.search.instance_sets import (
    InstanceSet,
    build_schedules_control,
    held_out_instance_sets,
    score_schedules,
    training_instances,
)
from morphogen.state import rng
from morphogen.vocab.action import AlphaTarget, Tempo
from morphogen.vocab.blueprint import Blueprint


def grown():
    return [
        (),
        (GrowthStep(0, "r0c0", Blueprint.NORM),),
        (GrowthStep(1, "r1c0", Blueprint.CONV_LIGHT, Tempo.STANDARD),),
        (GrowthStep(0, "r0c1", Blueprint.DEPTHWISE), GrowthStep(3, "r0c0", Blueprint.NORM)),
    ]


def world_of_candidate(setup, candidate, instances, number):
    return open_environment(
        setup,
        split=instances.split,
        envs=rng.sibling_keys(instances.tasks, number),
        tasks=instances.tasks,
        control=build_schedules_control(
            [build_schedule(candidate, setup.spec)] * len(instances.tasks), setup
        ),
    )


def alone(setup, candidate, instances, number):
    world = world_of_candidate(setup, candidate, instances, number)
    return fetch_traces(world.transfers, [run_episodes(world, *world.reset(instances.episode))])


@pytest.mark.slow
def test_a_schedule_earns_in_a_mixed_world_what_it_earns_alone():
    setup = tiny_setup(episode_length=10, lifecycle=QUICK)
    candidates = grown()
    instances = training_instances(setup.spec, 3)
    schedules = [build_schedule(candidate, setup.spec) for candidate in candidates]
    values = score_schedules(context_of(setup), schedules, instances, worlds=(0, 2))
    assert values.shape == (4, 2, 3)
    for k, candidate in enumerate(candidates):
        for w, number in enumerate((0, 2)):
            assert values[k, w] == pytest.approx(
                alone(setup, candidate, instances, number).network_value[-1], abs=1e-6
            )
    assert len({tuple(values[k].flatten()) for k in range(4)}) == 4


@pytest.mark.slow
def test_a_candidate_that_is_possible_is_kept_whole_and_one_that_is_not_is_not():
    setup = tiny_setup(episode_length=16, lifecycle=BYHAND)
    for candidate in grown()[1:]:
        life = alone(setup, candidate, InstanceSet(TRAINING_INSTANCES, 0, rng.env_keys(0, 0, 4)), 0)
        assert is_feasible(candidate, setup.spec)
        held = [setup.spec.slots.index(growth.slot) for growth in candidate]
        assert (
            life.fossil_blueprint[:, held] == [int(growth.blueprint) for growth in candidate]
        ).all()
        assert (life.fossil_blueprint >= 0).sum() == 4 * len(candidate)
    last = 16 - seed_timeline(setup.spec, Tempo.FAST).fossilizing
    late = (GrowthStep(last, "r0c0", Blueprint.NORM),)
    assert not is_feasible(late, setup.spec)
    assert (alone(setup, late, training_instances(setup.spec, 4), 0).fossil_blueprint == -1).all()


@pytest.mark.slow
def test_a_seed_lives_from_its_germination_to_its_pruning():
    setup = tiny_setup(episode_length=20, lifecycle=QUICK)
    end = seed_timeline(setup.spec, Tempo.FAST).holding + 1
    pruned = GrowthStep(0, "r0c0", Blueprint.NORM, pruning=end)
    candidate = (pruned, GrowthStep(end + 4, "r1c0", Blueprint.DEPTHWISE))
    early = (pruned, candidate[1]._replace(epoch=end + 3))
    assert is_feasible(candidate, setup.spec)
    assert not is_feasible(early, setup.spec)
    kept = alone(setup, candidate, training_instances(setup.spec, 3), 0)
    assert kept.fossil_blueprint.tolist() == [[-1, -1, int(Blueprint.DEPTHWISE)]] * 3
    assert (alone(setup, early, training_instances(setup.spec, 3), 0).fossil_blueprint == -1).all()
    grown = (kept.trained_params[:, 0] - kept.host_params[0]).tolist()
    sizes = setup.net.counts[0][Blueprint.NORM], setup.net.counts[2][Blueprint.DEPTHWISE]
    assert grown[:end] == [sizes[0]] * end
    assert grown[end : end + 4] == [0] * 4
    assert set(grown[end + 4 :]) == {sizes[1]}


@pytest.mark.parametrize("lifecycle", [QUICK, BYHAND], ids=["moved on", "by hand"])
def test_a_seed_that_is_pruned_later_may_be_held_at_less_alpha(lifecycle):
    setup = tiny_setup(episode_length=14, lifecycle=lifecycle)
    first = seed_timeline(setup.spec, Tempo.FAST).holding + 1
    seed = GrowthStep(0, "r0c0", Blueprint.NORM, pruning=first + 2, target=AlphaTarget.HALF)
    assert seed.label == f"norm in r0c0 from epoch 0 to {first + 2}, FAST, SIGMOID_ADD, HALF"
    assert is_feasible((seed,), setup.spec)
    assert not is_feasible((seed._replace(pruning=first),), setup.spec)
    assert not is_feasible((seed._replace(pruning=None),), setup.spec)
    world = world_of_candidate(setup, (seed,), training_instances(setup.spec, 2), 0)
    arm = build_arm("wait", setup)
    carry, alphas = first_carry(world, arm.policy), []
    for _ in range(first + 3):
        carry, _ = run_epoch(world, arm.policy, arm.params, carry)
        alphas.append(carry.state.slots.alpha[:, 0].tolist())
    assert alphas[first - 1 :] == [[1.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.0, 0.0]]
    tiny_specs = [
        tiny(episode_length=14, lifecycle=lifecycle, disabled_ops=ops)
        for ops in ((), ("SET_ALPHA_TARGET",))
    ]
    assert [is_feasible((seed,), spec) for spec in tiny_specs] == [True, False]


def test_pruning_is_tried_only_where_every_epoch_counts():
    seed = (GrowthStep(0, "r0c0", Blueprint.NORM),)
    anytime = replace(TASKS["digits"], name="anytime-digits", objective="anytime")
    for task, wanted in (("digits", False), (anytime, True)):
        near = neighbours([seed], tiny(task=task, episode_length=16, lifecycle=QUICK))
        found = {candidate[0].pruning for candidate in near}
        assert (found != {None}) == wanted
    ends = sorted(found - {None})
    assert len(ends) == 4
    later = neighbours(
        [(seed[0]._replace(pruning=ends[1]),)],
        tiny(task=anytime, episode_length=16, lifecycle=QUICK),
    )
    assert {None, ends[1] - 1, ends[1] + 2} <= {candidate[0].pruning for candidate in later}
    assert {candidate[0].target for candidate in later} == set(AlphaTarget)


def test_the_family_knows_what_a_run_forbids():
    free = initial_candidates(tiny(episode_length=12, lifecycle=QUICK))
    assert free[0] == ()
    assert len(set(free)) == len(free) == 1 + 5 * 3 * 7
    few = initial_candidates(
        tiny(episode_length=12, lifecycle=QUICK, slots=("r0c0",), blueprints=("norm", "attention"))
    )
    assert {(g.slot, g.blueprint) for candidate in few[1:] for g in candidate} == {
        ("r0c0", Blueprint.NORM),
        ("r0c0", Blueprint.ATTENTION),
    }
    assert initial_candidates(
        tiny(episode_length=12, lifecycle=QUICK, disabled_ops=("FOSSILIZE",))
    ) == [()]
    assert initial_candidates(
        tiny(episode_length=12, lifecycle=BYHAND, disabled_ops=("ADVANCE",))
    ) == [()]
    assert len(
        initial_candidates(tiny(episode_length=12, lifecycle=QUICK, disabled_ops=("ADVANCE",)))
    ) == len(free)
    assert initial_candidates(tiny(episode_length=2, lifecycle=QUICK)) == [()]


def test_two_seeds_are_tried_only_where_two_may_live():
    candidates = [
        (GrowthStep(0, "r0c0", Blueprint.NORM),),
        (GrowthStep(2, "r1c0", Blueprint.NORM),),
    ]
    for most, longest in ((0, 2), (2, 2), (1, 1)):
        spec = tiny(episode_length=12, lifecycle=QUICK, max_seeds=most)
        near = neighbours(candidates, spec)
        assert max(map(len, near)) == longest
        assert all(is_feasible(candidate, spec) for candidate in near)
        assert not set(near) & set(candidates)


def test_grounds_hold_every_held_out_episode_once_and_are_those_of_an_evaluation():
    grounds = held_out_instance_sets(tiny(envs=4), 10)
    assert [len(ground.tasks) for ground in grounds] == [4, 4, 2]
    assert [ground.episode for ground in grounds] == [0, 1, 2]
    assert {ground.split for ground in grounds} == {HELD_OUT_INSTANCES}


def test_schedules_are_tried_at_prices_as_dear_as_those_of_an_evaluation():
    slow = tiny_setup(ppo=PpoSpec(price_warmup_rounds=7))
    ground = training_instances(slow.spec, 64)
    state, _ = ground.open(context_of(slow)).reset(ground.episode)
    price = state.instance.param_price
    low, high = slow.spec.instance.param_price
    assert float(price.max()) > low * (high / low) ** 0.9
