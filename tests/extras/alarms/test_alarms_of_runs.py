"""Runs whose alarms find their causes, and healthy runs without alarms."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from support.faulty_sinks import all_events
from support.small_runs import tiny

from bench.harness.memory_sink import MemorySink
from morphogen.config.config_files import parse_config
from morphogen.config.spec import resolve
from morphogen.env.setup import build_setup
from morphogen.train.loop import Parts, Scheduler
from morphogen.train.train import train_ppo_vectorized

pytestmark = pytest.mark.slow


def found(change=None, *, rounds=1, poison=None, **fields):
    """Kinds of the anomalies of a run in which `change(round)` replaces leaves of a transfer."""
    sink = MemorySink()
    spec = tiny(task="tiny", rounds=rounds, **fields)
    scheduler = Scheduler(build_setup(spec), Parts(sinks=(sink,)))
    receive = scheduler.transfers.receive
    epoch = scheduler.run_epoch

    def changed(name, slot=0):
        leaves = receive(name, slot)
        for leaf, value in change(scheduler.round).get(name, {}).items() if change else ():
            assert leaf in leaves
            leaves[leaf] = np.broadcast_to(
                np.asarray(value, leaves[leaf].dtype), leaves[leaf].shape
            )
        return leaves

    def sick(carry, t):
        return epoch(carry if poison is None else poison(carry, t), t)

    scheduler.transfers.receive, scheduler.run_epoch = changed, sick
    with torch.no_grad():
        history = scheduler.run()
    scheduler.reporter.close()
    events = [event for event in all_events(sink) if event.name == "AnomalyDetected"]
    alarms = {event.data.kind for event in events if event.severity != "info"}
    assert {kind for one in history for kind in one.anomalies} == alarms
    return dict(Counter(event.data.kind for event in events))


def update(leaves):
    """A change of the metrics of every update."""
    return lambda round: {"update": leaves}


CAUSES = {  # kind of alarm -> metrics of an update
    "ratio_explosion": {"ratio_max": 6.0},
    "ratio_collapse": {"ratio_min": 0.05},
    "kl_extreme": {"kl": 0.7, "kl_valid": True},
    "value_collapse": {"td_error_abs_mean": 6.0},
    "update_skipped": {"skip_streak": 1},
    "behaviour_gap": {"behaviour_gap": 0.01},
    "numeric": {"policy_loss": np.inf},
    "hidden_nonfinite": {"hidden.c_nonfinite": 2},
    "hidden_explosion": {"hidden.h_env_rms_max": 11.0},
    "hidden_vanishing": {"hidden.c_rms": 1e-7},
}


def test_causes_in_the_metrics_of_an_update_are_found():
    metrics = {name: value for leaves in CAUSES.values() for name, value in leaves.items()}
    assert found(update(metrics)) == dict.fromkeys(CAUSES, 1)


def poison(carry, t):
    half = (torch.arange(4) < 2).unsqueeze(-1)
    host = carry.state.host
    sick = host.replace(params=torch.where(half, torch.nan, host.params))
    return carry._replace(state=carry.state.replace(host=sick)) if t == 2 else carry


def test_hosts_that_break_are_found_as_such_and_as_rollbacks():
    assert found(poison=poison, policy_name="random") == {"envs_nonfinite": 1, "rollbacks": 1}


@pytest.mark.parametrize(("kind", "place"), [("attribution_ratio", 0), ("ransomware", 1)])
def test_a_seed_that_looks_better_than_it_is_is_found_once(kind, place):
    fired = np.arange(2) == place
    kinds = found(lambda round: {"record": {"detectors": fired}}, policy_name="wait")
    assert kinds == {kind: 4 * 2}, "one of each slot and env, in six epochs"


@pytest.mark.parametrize("seed", [0, 5])
def test_a_healthy_run_has_no_anomaly(seed):
    spec = parse_config(json.dumps({"preset": "smoke", "seed": seed, "final_episodes": 0}))
    result = train_ppo_vectorized(resolve(spec))
    assert [one.anomalies for one in result.history] == [(), ()]
