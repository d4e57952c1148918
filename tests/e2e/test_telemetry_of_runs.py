"""Whole runs with telemetry: no sink changes a run, alarms find their causes, and a healthy run has
none.
"""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from support.faulty_sinks import Blocked, Broken, FullDisk, all_events
from support.run_comparison import leaves
from support.small_runs import tiny

from morphogen.config.config_files import parse_config
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import resolve
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.env.setup import build_setup
from morphogen.log.log_file import LogFile
from morphogen.log.run_log import events as read_all
from morphogen.log.run_log import read_events
from morphogen.log.writer import MemorySink
from morphogen.state.tensor_trees import load_tree
from morphogen.train import sinks
from morphogen.train.loop import Parts, Scheduler
from morphogen.train.train import train_ppo_vectorized

CHECKPOINT = "checkpoints/round-000002-epoch-0000"


def small(**telemetry):
    return tiny(task="tiny", rounds=2, telemetry=TelemetrySpec(**telemetry))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The folder of an undisturbed run."""
    out = tmp_path_factory.mktemp("plain") / "run"
    assert train_ppo_vectorized(small(), out=out).losses.lines() == []
    return out


def tensors(out):
    """Every leaf of the final state and of the policy."""
    names = (f"{CHECKPOINT}/state.safetensors", "policy.safetensors")
    trees = {name: load_tree(out / name, label="file") for name in names}
    return [leaf for leaf in leaves(trees).values() if torch.is_tensor(leaf)]


def bitwise(one, other):
    first, second = tensors(one), tensors(other)
    assert len(first) == len(second) > 20
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def reported(out):
    return list(read_all(out))


def lives(events):
    """Events of epochs, seeds and hosts, which have no fields of clocks."""
    return [one for one in events if one.epoch is not None]


@pytest.mark.parametrize("level", ["off", "debug"])
def test_a_level_changes_no_bit_of_a_run(plain, tmp_path, level):
    result = train_ppo_vectorized(small(level=level), out=tmp_path / "run")
    assert bitwise(plain, tmp_path / "run")
    assert (tmp_path / "run/events.jsonl").exists() == (level != "off")
    assert (result.history[0].accuracy_mean, len(result.history)) == (
        told_rounds(plain)[0].accuracy_mean,
        2,
    )


def told_rounds(out):
    return [one.data for one in reported(out) if one.name == "RoundCompleted"]


def test_sinks_that_block_or_raise_change_no_bit_of_a_run_and_take_no_line_from_the_file(
    plain, tmp_path
):
    blocked, broken = Blocked(), Broken(at=3)
    parts, spec = Parts(sinks=(blocked, broken)), small(close_timeout_s=0.2)
    result = train_ppo_vectorized(spec, parts=parts, out=tmp_path / "run")
    blocked.free.set()
    assert bitwise(plain, tmp_path / "run")
    assert lives(reported(tmp_path / "run")) == lives(reported(plain))
    assert Counter(
        one.data.sink for one in reported(tmp_path / "run") if one.name == "SinkFailed"
    ) == {
        "Blocked": 1,
        "Broken": 1,
    }
    assert reported(tmp_path / "run")[-1].name == "RunCompleted"
    assert set(result.losses.failed) == {"Blocked", "Broken"}
    assert not result.losses.incomplete


def test_a_sink_that_blocks_for_a_run_gets_every_round_once_it_is_free(plain, tmp_path):
    sink = Blocked()

    def free(summary, scheduler):
        if summary.round == 1:
            sink.free.set()

    train_ppo_vectorized(small(), parts=Parts(sinks=(sink,)), out=tmp_path / "run", on_round=free)
    assert [event.round for event in sink.events if event.name == "RoundCompleted"] == [0, 1]


class Disk(LogFile):
    """An event file on a disk with little room, which all instances share."""

    room = 4_000

    def __init__(self, path, **knobs):
        super().__init__(path, **knobs)
        self._file = self.disk = FullDisk(self._file, type(self).room)
        Disk.last = self


@pytest.mark.parametrize("room", [0, 4_000])
def test_a_disk_that_is_full_for_a_while_costs_no_life(plain, tmp_path, monkeypatch, room):
    monkeypatch.setattr(sinks, "LogFile", Disk)
    monkeypatch.setattr(Disk, "room", room)

    def free(summary, scheduler):
        if summary.round == 1:
            Disk.last.disk.room = None

    result = train_ppo_vectorized(small(), out=tmp_path / "run", on_round=free)
    assert bitwise(plain, tmp_path / "run")
    assert lives(reported(tmp_path / "run")) == lives(reported(plain))
    lines = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    assert not result.losses.incomplete


def test_a_disk_that_stays_full_stops_nothing_and_is_told(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(sinks, "LogFile", Disk)
    result = train_ppo_vectorized(small(), out=tmp_path / "run")
    assert bitwise(plain, tmp_path / "run")
    assert result.losses.incomplete
    assert "No space left on device" in result.losses.lines()[-1]
    names = [one.name for one in read_events(tmp_path / "run/events.jsonl")]
    assert names in ([], ["RunStarted"]), "a part of a line was left"


# --- anomalies
#
# ----------------------------------------------------------------------------


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
NOT_A_NUMBER = {
    "ratio_max": np.nan,
    "entropy_head.op": np.nan,
    "entropy_head.op_valid": True,
}


def test_causes_in_the_metrics_of_an_update_are_found():
    metrics = {name: value for leaves in CAUSES.values() for name, value in leaves.items()}
    assert found(update(metrics)) == dict.fromkeys(CAUSES, 1)


def test_numbers_that_are_none_are_found_under_their_own_names():
    kinds = found(update(NOT_A_NUMBER))
    assert kinds == {"ratio_nonfinite": 1, "entropy_nonfinite": 1, "numeric": 1}


def test_causes_that_take_rounds_are_found_when_their_time_has_come():
    change = lambda round: {
        "update": {
            "entropy_head.op": 0.01 if round else 0.9,
            "entropy_head.op_valid": True,
            "gradient_norm": 9.0 if round == 4 else 1.0,
            "gradient_norm_valid": True,
            "observation.clip_share": 0.02,
            "observation.clip_share_valid": True,
        },
        "record": {"action": 0, "forced": False},
    }
    assert found(change, rounds=5) == {
        "entropy_collapse": 2,
        "gradient_drift": 1,
        "observation_clipped": 3,
        "wait_only": 3,
    }


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


def test_a_learning_rate_far_too_high_is_found():
    kinds = found(ppo=PpoSpec(lr=0.3, epochs=4, target_kl=None))
    assert {"ratio_collapse", "kl_extreme"} <= set(kinds)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_healthy_run_has_no_anomaly(seed):
    spec = parse_config(json.dumps({"preset": "smoke", "seed": seed, "final_episodes": 0}))
    result = train_ppo_vectorized(resolve(spec))
    assert [one.anomalies for one in result.history] == [(), ()]
