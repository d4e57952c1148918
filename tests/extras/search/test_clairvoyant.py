"""Schedules along the regimes of an instance: where regimes begin, what a plan becomes, and what
the search finds.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.extras import needs_extra
from support.small_runs import QUICK, context_of, tiny

import morphogen as mg
from morphogen.config.task import TASKS
from morphogen.env.environment import open_environment
from morphogen.extras.search import instance_sets
from morphogen.extras.search.candidates import (
    RESTING_EPOCHS,
    GrowthStep,
    build_schedule,
    is_feasible,
)
from morphogen.extras.search.clairvoyant import lay_plan, regime_starts, search_along_regimes
from morphogen.extras.search.instance_sets import (
    held_out_instance_sets,
    score_pairs,
    training_instances,
)
from morphogen.vocab.blueprint import Blueprint

RegimeSpec = pytest.importorskip("morphogen.extras.regimes.regime_spec").RegimeSpec
REGIME = RegimeSpec(hazard=0.3, least=6, views={"noisy": 1}, classes=(2, 3))
ANYTIME = replace(TASKS["digits"], name="anytime-digits", objective="anytime")
A, B = Blueprint.NORM, Blueprint.DEPTHWISE


def spec_of(**fields):
    wanted = {
        "task": ANYTIME,
        "episode_length": 30,
        "regime": REGIME,
        "lifecycle": QUICK,
        "blueprints": ("norm",),
    }
    observe = mg.ObserveSpec(instance=("param_price",))
    price = {"classes": (10, 10), "param_price": (0.05, 0.4)}
    return tiny(**{**wanted, "observe": observe, "instance": mg.InstanceSpec(**price), **fields})


@pytest.mark.slow
def test_regimes_begin_where_the_worlds_of_a_run_change():
    spec = spec_of()
    instances = training_instances(spec, 5)
    env = mg.make(spec, envs=5, seed=spec.seed)
    state, _ = env.reset(instances.episode)
    numbers = [state.instance.regime]
    for _ in range(spec.episode_length - 1):
        state, _ = env.step(state, mg.actions.wait(env))
        numbers.append(state.instance.regime)
    found = regime_starts(spec, instances)
    assert max(map(len, found)) > 1
    for starts, seen in zip(found, torch.stack(numbers, dim=-1).tolist(), strict=True):
        assert starts == (0, *(t for t in range(1, len(seen)) if seen[t] != seen[t - 1]))


def test_a_plan_has_a_seed_where_its_regimes_want_one():
    spec = spec_of()
    starts = (0, 8, 16, 24)
    assert lay_plan((None,) * 4, starts, "r0c0", spec) == ()
    assert lay_plan((A,) * 4, starts, "r0c0", spec) == (GrowthStep(0, "r0c0", A),)
    assert lay_plan((A, A, None, A), starts, "r0c0", spec) == (
        GrowthStep(0, "r0c0", A, pruning=16),
        GrowthStep(24, "r0c0", A),
    )
    rest = spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    swapped = lay_plan((A, B, None, None), starts, "r0c0", spec)
    assert swapped == (
        GrowthStep(0, "r0c0", A, pruning=8),
        GrowthStep(8 + rest, "r0c0", B, pruning=16),
    )


def test_a_slot_may_be_used_again_once_its_seed_was_pruned():
    spec = spec_of()
    first = GrowthStep(0, "r0c0", A, pruning=10)
    rest = spec.lifecycle.embargo_epochs + RESTING_EPOCHS
    assert is_feasible((first, GrowthStep(10 + rest, "r0c0", A)), spec)
    assert not is_feasible((first, GrowthStep(10 + rest - 1, "r0c0", A)), spec)
    assert not is_feasible((first._replace(pruning=None), GrowthStep(14, "r0c0", A)), spec)
    one = spec_of(max_seeds=1)
    assert is_feasible((first, GrowthStep(10 + rest, "r1c0", A)), one)
    assert not is_feasible((first._replace(pruning=None), GrowthStep(14, "r1c0", A)), one)


@pytest.mark.slow
def test_the_search_finds_what_is_best_where_it_is_played_again():
    data = mg.DataSpec(batch=8, minibatches=1, val_samples=16)
    spec = spec_of(episode_length=14, slots=("r0c0",), data=data)
    setup = mg.build_setup(spec)
    instances = training_instances(setup.spec, 2)
    said: list[str] = []
    context = replace(context_of(setup), report=said.append)
    picks, values = zip(*search_along_regimes(context, instances), strict=True)
    assert len(picks) == 2
    assert all(is_feasible(candidate, setup.spec) for candidate in picks)
    assert len(said) == 4
    schedules = [build_schedule(candidate, setup.spec) for candidate in picks]
    again = score_pairs(context, schedules, instances, worlds=(1, 2, 3)).mean(axis=0)
    assert np.allclose(again, values, atol=1e-6)
    idle = score_pairs(context, [build_schedule((), setup.spec)] * 2, instances, worlds=(1, 2, 3))
    assert (np.array(values) >= idle.mean(axis=0) - 1e-6).all()


@pytest.mark.slow
@needs_extra("whitebox")
def test_no_schedule_is_tried_in_the_world_in_which_the_arm_is_judged(monkeypatch):
    env = mg.make("whitebox", envs=3, seed=0, episode_length=6, instances="held-out")
    wanted = held_out_instance_sets(env.spec, 3)[0].tasks
    played = []

    def noted(*args, **knobs):
        played.append((knobs["envs"], knobs.get("tasks")))
        return open_environment(*args, **knobs)

    monkeypatch.setattr(instance_sets, "open_environment", noted)
    mg.play_arms(env, ("clairvoyant",))
    *tried, judged = played
    assert tried
    for key, tasks in tried:
        assert tasks is not None
        assert not {int(word) for word in key[:, 0]} & {int(word) for word in wanted[:, 0]}
    assert torch.equal(judged[0], wanted)


@pytest.mark.slow
@needs_extra("whitebox")
@pytest.mark.parametrize("epochs", [8, 3])
def test_worlds_of_one_regime_have_a_best_schedule_too_and_short_ones_grow_nothing(epochs):
    env = mg.make("whitebox", envs=12, seed=0, episode_length=epochs, instances="held-out")
    results = mg.play_arms(env, ("wait", "clairvoyant"))
    gain = results["clairvoyant"].network_value - results["wait"].network_value
    assert (gain >= 0).all()
    assert (gain > 0).any() == (epochs == 8)
