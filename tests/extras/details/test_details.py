"""Events about details of an epoch, against records counted step by step."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import (
    COMPONENTS,
    SLOTS,
    columns_of,
    epochs_run,
    events_of,
    facts,
    legal_values,
    live,
)

from morphogen.log.round_record import slot_history
from morphogen.vocab.action import HEADS, RELEVANT, Op
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


@lifetimes
def test_actions_are_told_by_name_where_the_op_uses_the_head(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    paid = reported("RewardsPaid", records, known)
    for t, event in reported("ActionsTaken", records, known).items():
        record, one = records[t], event.data
        assert one.reward == paid[t].data.reward
        for e in range(envs):
            op = Op(record["action"][e, 0])
            assert one.op[e] == op.name
            assert [getattr(one, head)[e] is not None for head in HEADS] == list(RELEVANT[op])
            if one.slot[e] is not None:
                assert one.slot[e] == SLOTS[record["action"][e, 1]]
            legal = [o for o in Op if record["op_legal"][e, o] and o is not op]
            likely = sorted(legal, key=lambda o: (-record["op_prob"][e, o], o))
            assert one.others[e] == tuple(o.name for o in likely[:2])


@lifetimes
def test_every_legal_value_of_every_head_is_told_beside_the_action(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    for t, event in reported("ActionsTaken", records, known).items():
        for e, (i, head) in itertools.product(range(envs), enumerate(HEADS)):
            used, mask = (
                RELEVANT[records[t]["action"][e, 0]][i],
                getattr(event.data, f"{head}_legal")[e],
            )
            assert np.array_equal(mask, records[t][f"{head}_legal"][e])
            assert event.data.choices[e][i] == (len(legal_values(records[t], e, i)) if used else 0)


def test_an_action_outside_of_the_table_has_no_name():
    records, known = epochs_run(3, 1, 1)
    records[0]["action"] = np.asarray([[Op.GERMINATE, 7, -1, 0, 0, 0, 0, 0]])
    one = reported("ActionsTaken", records, known)[0].data
    assert (one.slot, one.blueprint, one.style) == ((None,), (None,), ("LINEAR_ADD",))


@lifetimes
def test_what_is_not_measured_is_null_and_only_that(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    flags = {
        "gradient_norm": "gradient",
        "gradient_ratio": "gradient_ratio",
        "velocity": "velocity",
    }
    flags |= {"interaction": "interaction", "vanishing": "gradient", "exploding": "gradient"}
    history = slot_history(columns_of(records))
    for t, event in reported("SlotsMeasured", records, known).items():
        for name, flag in flags.items():
            valid = records[t][f"{flag}_valid"]
            assert np.array_equal(
                [[x is not None for x in row] for row in getattr(event.data, name)], valid
            )
        assert np.array_equal(event.data.age, history["age"][t])
    for t, event in reported("AblationsMeasured", records, known).items():
        assert [None not in row for row in event.data.acc_table] == records[t]["exact"].tolist()
    assert len(reported("AblationsMeasured", records, known)) == epochs


@lifetimes
def test_gradients_of_hosts_are_told_by_parameter_tensor_where_a_host_trained(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    found = reported("HostGradients", records, known)
    assert sorted(found) == list(range(epochs))
    for t, event in found.items():
        assert event.data.names == known.layers
        assert event.data.norm == tuple(
            (0.25, 0.5) if yes else (None, None) for yes in records[t]["train_valid"]
        )
    for record in records:
        record["host_layer_norm"] = np.zeros((envs, 0))
    assert not reported("HostGradients", records, known)


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


@lifetimes
def test_totals_of_what_was_paid_grow_by_what_is_paid(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    before = np.zeros((envs, len(COMPONENTS)))
    for event in reported("RewardsPaid", records, known).values():
        assert event.data.names == COMPONENTS
        assert np.asarray(event.data.totals) == pytest.approx(
            before + np.asarray(event.data.components), abs=1e-5
        )
        before = np.asarray(event.data.totals)


def test_the_manifest_of_an_env_lists_its_fossils():
    there, records = live(3, 4, 25)
    found = found_of("TopologyRecorded", records, facts(4, 25))
    fossils = [sum(slot.stage is S.FOSSILIZED for slot in env.slots) for env in there]
    assert {event.env for event in found} == {env for env, count in enumerate(fossils) if count}
    for event in found:
        assert len(event.data.manifest["slots"]) == fossils[event.env]
        text = json.dumps(event.data.manifest, sort_keys=True, separators=(",", ":"))
        assert event.data.sha256 == hashlib.sha256(text.encode()).hexdigest()
