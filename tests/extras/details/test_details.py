"""Events about details of an epoch, against records counted step by step."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import SLOTS, epochs_run, events_of, facts, live

from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

lifetimes = given(seed=st.integers(0, 10**6), envs=st.integers(1, 4), epochs=st.integers(1, 12))
S = Stage


def found_of(name, records, known):
    """All events of a kind."""
    return [event for event in events_of(records, known, round=2) if event.name == name]


def reported(name, records, known):
    """All events of one kind about all envs, by epoch."""
    return {event.epoch: event for event in found_of(name, records, known)}


@lifetimes
def test_gates_are_told_when_asked_with_the_checks_that_failed(seed, envs, epochs):
    there, records = live(seed, envs, epochs)
    found = found_of("GateEvaluated", records, facts(envs, epochs))
    targets = {
        "TRAIN": Stage.TRAINING,
        "BLEND": Stage.BLENDING,
        "HOLD": Stage.HOLDING,
        "FOSSILIZE": Stage.FOSSILIZED,
    }
    for e, env in enumerate(there):
        have = [(v.epoch, v.slot, targets[v.data.gate], v.data.passed) for v in found if v.env == e]
        assert have == [(t, SLOTS[s], to, passed) for t, s, to, passed in env.gates]
    assert all(
        event.data.failed == (() if event.data.passed else ("too_early",)) for event in found
    )


def test_the_first_stable_epoch_is_told_once_an_episode():
    _, records = live(2, 2, 15)
    found = found_of("HostStabilized", records, facts(2, 15))
    assert [(event.env, event.epoch) for event in found] == [(0, 7), (1, 7)]


def test_an_action_outside_of_the_table_has_no_name():
    records, known = epochs_run(3, 1, 1)
    records[0]["action"] = np.asarray([[Op.GERMINATE, 7, -1, 0, 0, 0, 0, 0]])
    one = reported("ActionsTaken", records, known)[0].data
    assert (one.slot, one.blueprint, one.style) == ((None,), (None,), ("LINEAR_ADD",))


UNKNOWN = {"contribution_valid": False, "interaction_valid": False}


@pytest.mark.parametrize(
    ("change", "measured", "reason"),
    [
        ({}, True, None),
        (UNKNOWN, False, "skipped"),
        ({**UNKNOWN, "stage_ticked": S.TRAINING}, True, "no_player"),
        ({**UNKNOWN, "alpha": 0.0}, True, "no_player"),
        ({"interaction_valid": False}, True, "not_exact"),
    ],
)
def test_a_seed_without_a_fresh_contribution_is_told_with_the_reason(change, measured, reason):
    records, known = epochs_run(0, 1, 1)
    seed = {
        "stage": S.BLENDING,
        "stage_ticked": S.BLENDING,
        "alpha": 0.5,
        **dict.fromkeys(UNKNOWN, True),
        **change,
    }
    empty = {"stage": S.DORMANT, "stage_ticked": S.DORMANT, "alpha": 0.0, **UNKNOWN}
    slots = {name: np.asarray([[seed[name], empty[name], empty[name]]]) for name in seed}
    record = {**records[0], **slots, "measured": np.asarray([measured])}
    found = [e.data for e in events_of([record], known) if e.name == "AttributionMissing"]
    assert [one.reason for one in found] == ([] if reason is None else [((reason, None, None),)])


def test_the_manifest_of_an_env_lists_its_fossils():
    there, records = live(3, 4, 25)
    found = found_of("TopologyRecorded", records, facts(4, 25))
    fossils = [sum(slot.stage is S.FOSSILIZED for slot in env.slots) for env in there]
    assert {event.env for event in found} == {env for env, count in enumerate(fossils) if count}
    for event in found:
        assert len(event.data.manifest["slots"]) == fossils[event.env]
        text = json.dumps(event.data.manifest, sort_keys=True, separators=(",", ":"))
        assert event.data.sha256 == hashlib.sha256(text.encode()).hexdigest()
