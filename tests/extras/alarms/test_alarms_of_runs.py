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


def test_a_healthy_run_has_no_anomaly():
    spec = parse_config(json.dumps({"preset": "smoke", "seed": 5, "final_episodes": 0}))
    result = train_ppo_vectorized(resolve(spec))
    assert [one.anomalies for one in result.history] == [(), ()]
