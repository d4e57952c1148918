"""Events: derived from records alone they are what happened, and their lines come back equal."""

import itertools
import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import faulty_sinks
from support.random_records import SLOTS, events_of, facts, live, round_record

from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope, tidy
from morphogen.log.jsonl import decode, encode, encode_round
from morphogen.log.kinds.epoch import StageChanged
from morphogen.log.kinds.ppo import PpoUpdated, ppo_event
from morphogen.log.log_file import LogFile
from morphogen.log.round_summary import RoundCosts, stability, summarise, throughput_events
from morphogen.ppo import metrics
from morphogen.vocab.blueprint import Blueprint

lifetimes = given(seed=st.integers(0, 10**6), envs=st.integers(1, 4), epochs=st.integers(1, 25))


reported = events_of


def named(found, name):
    return [event for event in found if event.name == name]


@lifetimes
def test_stage_changes_are_the_moves_that_happened(seed, envs, epochs):
    there, records = live(seed, envs, epochs)
    found = named(reported(records, facts(envs, epochs)), "StageChanged")
    for e, env in enumerate(there):
        wanted = [
            (
                t,
                SLOTS[s],
                cause,
                here.name,
                to.name,
                age,
                count,
                None if kind < 0 else Blueprint(kind).label,
            )
            for t, s, cause, here, to, age, count, kind, *_ in env.log
        ]
        have = [
            (v.epoch, v.slot, d.cause, d.from_, d.to, d.age, d.epochs_in_stage, d.blueprint)
            for v in found
            if v.env == e and isinstance(d := v.data, StageChanged)
        ]
        assert sorted(have) == sorted(wanted, key=lambda row: row[:4])


def test_episodes_are_numbered_over_all_envs_of_the_run():
    found = reported(live(5, 2, 6)[1], facts(2, 6), round=3)
    assert {(event.env, event.episode) for event in found if event.env is not None} == {
        (0, 6),
        (1, 7),
    }


@pytest.mark.slow
@lifetimes
def test_an_env_s_events_do_not_depend_on_its_neighbours(seed, envs, epochs):
    _, records = live(seed, envs, epochs)
    whole = reported(records, facts(envs, epochs), round=3)
    for e in range(envs):
        rows = [{name: leaf[e : e + 1] for name, leaf in record.items()} for record in records]
        alone = reported(rows, facts(1, epochs), round=3)
        assert [event.data for event in alone if event.env is not None] == [
            event.data for event in whole if event.env == e
        ]


@lifetimes
def test_events_of_a_kind_are_those_among_all_events(seed, envs, epochs):
    record = round_record(live(seed, envs, epochs)[1], facts(envs, epochs))
    every = list(derive_events(record))
    for kind in {event.name for event in every}:
        assert list(derive_events(record, {kind})) == named(every, kind)


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [([50], 1), ([50, 60], 1), ([50, 60, 70], 1), ([50, 60, 50], 1 / 101), ([10] + [50] * 21, 1)],
)
def test_stability_falls_with_the_variance_of_the_last_20_differences(accuracies, expected):
    recent = np.asarray([np.nan] * 21 + [float(a) for a in accuracies])[-21:]
    assert stability(recent) == pytest.approx(expected)


def summary(records, known, rolling=(), **more):
    settings = {"round": 0, "updated": True, "costs": RoundCosts(2.0, 10), **more}
    return summarise(round_record(records, known).ends, rolling, **settings)


def test_rolling_accuracy_is_the_mean_of_the_last_ten_rounds():
    rolling, means = (), []
    for round in range(14):
        one, rolling = summary(live(round, 1, 1)[1], facts(1, 1), rolling, round=round)
        means.append(one.accuracy_mean)
        assert one.rolling_accuracy == pytest.approx(np.mean(means[-10:]), rel=1e-6)


def test_rates_are_of_the_rollout_and_shares_of_the_whole_round():
    spent = {"host_cpu_s": 0.5, "device_s": None, "count": 3}
    phases = {"data": {"wall_s": 1.0, **spent}, "train": {"wall_s": 6.0, **spent}}
    pace, profile = throughput_events(
        RoundCosts(4.0, 6, 1.0, waited_s=0.5, phases=phases), samples=32
    )
    assert (pace.rollout_s, pace.update_s, pace.env_epochs_per_s, pace.samples_per_s) == (
        4.0,
        1.0,
        1.5,
        48.0,
    )
    assert (pace.host_wait_time_share, pace.data_wait_time_share) == (0.1, 0.2)
    assert profile.phases == phases
    (alone,) = throughput_events(RoundCosts(4.0, 6), samples=32)
    assert alone.data_wait_time_share is None


def test_a_round_without_episodes_has_no_summary():
    with pytest.raises(ValueError, match="without completed episodes"):
        summarise({"accuracy": np.zeros(0)}, (), round=0, updated=False, costs=RoundCosts(1.0, 1))


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=JSON)
def test_tidy_values_are_json_with_at_most_7_digits_and_tidy_themselves(value):
    found = tidy(value)
    assert tidy(found) == found
    assert tidy(json.loads(json.dumps(found, allow_nan=False))) == found


SAVED = Envelope(faulty_sinks.SAVED)
DONE = faulty_sinks.DONE


def test_a_line_has_the_keys_of_the_envelope_in_order():
    move = StageChanged(
        from_="DORMANT",
        to="GERMINATED",
        cause="action",
        blueprint=None,
        alpha=0.0,
        age=0,
        epochs_in_stage=0,
    )
    whole = json.loads(
        encode(
            Envelope(move, round=1, epoch=0, env=2, episode=34, slot="r0c0"), seq=7, time=1.23456
        )
    )
    assert list(whole) == [
        *("v", "seq", "time", "event", "severity"),
        *("round", "epoch", "env", "episode", "slot", "data"),
    ]
    assert whole["time"] == 1.235
    assert whole["data"]["from"] == "DORMANT"
    assert "round" not in json.loads(encode(SAVED, seq=0, time=0.0))


def test_rounds_count_from_1_in_a_line_and_from_0_in_an_event():
    (one, _) = summary(live(1, 1, 1)[1], facts(1, 1), round=6)
    for event, place, number in (
        (Envelope(DONE), "best_round", 1),
        (Envelope(one, round=6), "round", 7),
    ):
        line = json.loads(encode(event, seq=0, time=0.0))
        assert line["data"][place] == number
        assert line.get("round") == (7 if event.round == 6 else None)
        assert decode(json.dumps(line)) == (event,)
        with pytest.raises(ValueError, match=rf"{place}: expected .* 0"):
            decode(json.dumps({**line, "data": {**line["data"], place: 0}}))


def test_a_line_of_another_format_is_refused_with_one_sentence():
    line = {**json.loads(encode(SAVED, seq=0, time=0.0)), "v": 2}
    with pytest.raises(
        ValueError, match=r"^format: expected .*4, got 2: another version of morphogen wrote it$"
    ):
        decode(json.dumps(line))


def test_the_file_is_appended_to_and_numbered_without_gaps(tmp_path):
    path = tmp_path / "events.jsonl"
    ticks = itertools.count(100)
    sink = LogFile(path, clock=lambda: float(next(ticks)))
    found = [SAVED] * 12
    for at in range(0, len(found), 5):
        sink.write(found[at : at + 5])
    sink.write([])
    sink.close()
    sink.close()
    again = LogFile(path, first_seq=sink.seq)
    end = Envelope(DONE)
    again.write([end])
    again.close()
    text = path.read_text().splitlines(keepends=True)
    assert [json.loads(one)["seq"] for one in text] == list(range(len(found) + 1))
    assert [event for one in text for event in decode(one)] == [*found, end]


def test_what_a_file_takes_in_parts_arrives_whole(tmp_path, monkeypatch):
    sink = LogFile(tmp_path / "events.jsonl")
    real = sink._file

    class Slow:
        def write(self, data):
            return real.write(data[:7])

    monkeypatch.setattr(sink, "_file", Slow())
    sink.write([SAVED] * 2)
    real.close()
    assert [decode(one) for one in (tmp_path / "events.jsonl").read_text().splitlines()] == [
        (SAVED,),
        (SAVED,),
    ]


def test_update_metrics_become_an_event():
    joined = {"update_s", "nonfinite", *metrics.METRIC_PARTS}
    flat = {one.name for one in fields(PpoUpdated)} - joined
    names = {*flat, *metrics.LABELS, "nonfinite.rollout"}
    found = {name: np.float64(2.0) for name in names} | {"stopped_by_kl": np.float64(1.0)}
    found |= {f"{name}_valid": np.bool_(name != "explained_variance") for name in names}
    found["stopped_by_kl"] = np.float64(1.0)
    event = ppo_event(found, update_s=0.5)
    assert event.explained_variance is None
    assert event.kl == 2.0
    assert (event.steps_done, event.stopped_by_kl) == (2, True)
    assert isinstance(event.steps_done, int)
    assert set(event.entropy_head) >= {"op", "slot", "alpha_curve"}
    assert event.nonfinite == {"loss": 2, "gradient": 2, "step": 2, "rollout": 2, "metric": 0}
    assert event.update_s == 0.5
    broken = ppo_event({**found, "kl": np.float64("nan"), "explained_variance": np.float64("inf")})
    assert (broken.kl, broken.nonfinite) == (
        None,
        {"loss": 2, "gradient": 2, "step": 2, "rollout": 2, "metric": 1},
    )
    unknown = [one.name for one in fields(PpoUpdated) if getattr(event, one.name) is None]
    assert unknown == ["explained_variance"]
    assert decode(encode(Envelope(event, round=1), seq=0, time=0.0))[0].data == event


def test_all_events_about_a_round_are_one_line():
    (one, _) = summary(live(1, 1, 1)[1], facts(1, 1), round=6)
    found = [Envelope(one, round=6), Envelope(ppo_event({"kl": 0.5}), round=6, severity="warning")]
    text = encode_round(found, seq=3, time=1.0)
    line = json.loads(text)
    assert (line["seq"], line["round"], text.count("\n")) == (3, 7, 1)
    assert [part["event"] for part in line["events"]] == ["RoundCompleted", "PpoUpdated"]
    assert decode(text) == tuple(found)
    with pytest.raises(ValueError, match="expected events about one round"):
        encode_round([found[0], Envelope(one, round=5)], seq=0, time=0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"events": 3},
        {"events": [3]},
        {"events": [{"event": "RoundCompleted"}]},
        {"round": 0},
        {"round": None},
        {"more": 1},
        {"events": [{"event": "Unknown", "severity": "info", "data": {}}]},
    ],
)
def test_a_line_of_a_round_that_is_damaged_is_refused(change):
    (one, _) = summary(live(1, 1, 1)[1], facts(1, 1))
    line = json.loads(encode_round([Envelope(one, round=0)], seq=0, time=0.0))
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode(json.dumps({**line, **change}))
