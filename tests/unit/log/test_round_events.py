"""Events of an epoch and of a round against records counted step by step."""

import itertools
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import COMPONENTS, SLOTS, columns_of, events_of, facts, live

from morphogen.log.jsonl import decode, encode
from morphogen.log.kinds.round import ObservationStats
from morphogen.log.round_record import slot_history
from morphogen.log.round_summary import round_events, scale_drift
from morphogen.vocab.action import HEADS, RELEVANT, Op, Outcome, Reason, Style, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Stage

lifetimes = given(seed=st.integers(0, 10**6), envs=st.integers(1, 4), epochs=st.integers(1, 12))
S = Stage


def epochs_run(seed, envs, epochs):
    """Records of the epochs of a round, and constants of the run."""
    return live(seed, envs, epochs)[1], facts(envs, epochs)


def reported(name, records, known):
    """All events of one kind of the epochs of a round, by epoch."""
    return {
        event.epoch: event for event in events_of(records, known, round=2) if event.name == name
    }


def round_of(records, known, metrics=None, first=None):
    columns = columns_of(records)
    return {type(one).__name__: one for one in round_events(columns, metrics or {}, first, known)}


@lifetimes
def test_actions_of_a_round_are_counted_one_by_one(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    one = round_of(records, known)["ActionCounts"]
    steps = [(record, e) for record in records for e in range(envs)]
    ops = [Op(record["action"][e, 0]) for record, e in steps]
    assert one.sampled == {op.name: ops.count(op) for op in Op}
    taken = Counter(
        op.name for op, (record, e) in zip(ops, steps, strict=True) if record["success"][e]
    )
    assert one.succeeded == {op.name: taken[op.name] for op in Op}
    effective = Counter(Op(record["op_effective"][e]).name for record, e in steps)
    assert one.effective == {op.name: effective[op.name] for op in Op}
    reasons = Counter(Reason(record["reason"][e]).name for record, e in steps)
    assert one.reasons == {reason.name: reasons[reason.name] for reason in Reason if reason}
    outcomes = Counter(Outcome(record["outcome"][e]).name for record, e in steps)
    assert one.outcomes == {outcome.name: outcomes[outcome.name] for outcome in Outcome}
    assert (one.forced, one.missed) == tuple(
        sum(int(r[name][e]) for r, e in steps) for name in ("forced", "missed")
    )


@lifetimes
def test_values_of_a_head_count_where_the_op_uses_it(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    one = round_of(records, known)["ActionCounts"]
    rows = [row for record in records for row in record["action"].tolist()]
    names = {
        "slot": SLOTS,
        "blueprint": [b.label for b in Blueprint],
        "style": [s.name for s in Style],
    }
    names |= {"tempo": [t.name for t in Tempo]}
    for head, values in names.items():
        column = HEADS.index(head)
        used = [values[row[column]] for row in rows if RELEVANT[row[0]][column]]
        assert one.heads[head] == {value: used.count(value) for value in values}
    assert one.heads["op"] == one.sampled


def legal_values(record, env, head):
    """Values of a head that are legal for the op that was chosen."""
    mask = record[f"{HEADS[head]}_legal"][env]
    return np.flatnonzero(
        mask[record["action"][env, 0]] if HEADS[head] == "slot" else mask
    ).tolist()


@lifetimes
def test_mask_hit_rates_are_shares_of_steps(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    one = round_of(records, known)["MaskHitRates"]
    steps = [(record, e) for record in records for e in range(envs)]
    for op in Op:
        legal = sum(bool(record["op_legal"][e, op]) for record, e in steps)
        assert one.legal_share[op.name] == pytest.approx(legal / len(steps), rel=1e-6)
    for i, head in enumerate(HEADS):
        counts = [len(legal_values(r, e, i)) for r, e in steps if RELEVANT[r["action"][e, 0]][i]]
        mean = pytest.approx(np.mean(counts), rel=1e-6) if counts else None
        single = pytest.approx(counts.count(1) / len(counts), rel=1e-6) if counts else None
        assert (one.choices_mean[head], one.single_share[head]) == (mean, single)


@lifetimes
def test_rewards_of_a_round_are_summed_up_by_component(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    one = round_of(records, known)["RewardSummary"]
    paid = {
        name: [r["components"][e, i] for r in records for e in range(envs)]
        for i, name in enumerate(COMPONENTS)
    }
    rewards = [r["reward"][e] for r in records for e in range(envs)]
    for spread, values in (
        *((one.components[name], values) for name, values in paid.items()),
        (one.total, rewards),
    ):
        wanted = {
            "mean": np.mean(values),
            "std": np.std(values),
            "min": min(values),
            "max": max(values),
        }
        assert spread == pytest.approx({**wanted, "sum": sum(values) / envs}, rel=1e-5, abs=1e-6)


def test_a_reward_that_is_not_finite_counts_for_nothing():
    records, known = epochs_run(1, 2, 3)
    records[1]["reward"] = np.asarray([np.nan, np.inf])
    total = round_of(records, known)["RewardSummary"].total
    finite = [float(x) for t in (0, 2) for x in records[t]["reward"]]
    assert (total["mean"], total["max"]) == pytest.approx((np.mean(finite), max(finite)), rel=1e-6)


@lifetimes
def test_an_epoch_is_told_of_every_env(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    found = reported("EpochCompleted", records, known)
    assert sorted(found) == list(range(epochs))
    for t, event in found.items():
        record, one = records[t], event.data
        assert (event.round, event.epoch, event.env) == (2, t, None)
        for e in range(envs):
            trained = bool(record["train_valid"][e])
            assert (
                (one.train_loss[e] is not None)
                == (one.host_gradient_norm[e] is not None)
                == trained
            )
            assert one.stage[e] == tuple(S(code).name for code in record["stage"][e])
            assert one.op_effective[e] == Op(record["op_effective"][e]).name
            delivered = 400 + sum(
                int(p)
                for p, s in zip(record["params"][e], record["stage"][e], strict=True)
                if s in (S.BLENDING, S.HOLDING, S.FOSSILIZED)
            )
            assert one.params_ratio[e] == pytest.approx(delivered / 400, rel=1e-6)
            for s in range(len(SLOTS)):
                there = S.GERMINATED <= record["stage"][e, s] <= S.FOSSILIZED
                known_ = there and bool(record["contribution_valid"][e, s])
                assert one.contribution[e][s] == (
                    pytest.approx(float(record["contribution"][e, s])) if known_ else None
                )


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


def test_every_epoch_has_one_event_of_each_kind_about_all_envs():
    found = Counter(event.name for event in events_of(*epochs_run(4, 2, 5)))
    kinds = ("EpochCompleted", "AblationsMeasured", "ActionsTaken", "RewardsPaid", "SlotsMeasured")
    assert [found[kind] for kind in kinds] == [5] * 5


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


@lifetimes
def test_every_event_of_an_epoch_comes_back_from_its_line(seed, envs, epochs):
    records, known = epochs_run(seed, envs, epochs)
    for event in events_of(records, known):
        assert decode(encode(event, seq=0, time=0.0)) == (event,)


def test_what_the_update_did_not_measure_is_null():
    records, known = epochs_run(0, 2, 2)
    bare = round_of(records, known)
    assert "HiddenHealth" not in bare
    assert all(
        getattr(bare["ObservationStats"], one.name) is None for one in fields(ObservationStats)
    )
    metrics = {
        f"observation.{name}": np.float32(0.5)
        for name in ("clip_share", "near_clip_share", "host_mean")
    }
    metrics |= {
        "observation.clip_share_valid": np.bool_(False),
        "observation.near_clip_share_valid": np.bool_(True),
    }
    metrics |= {
        f"hidden.{m}_{n}": np.float32(1)
        for m in "hc"
        for n in ("rms", "env_rms_mean", "env_rms_max", "abs_max")
    }
    metrics |= {f"hidden.{m}_nonfinite": np.int64(2) for m in "hc"}
    full = round_of(records, known, metrics)
    seen = full["ObservationStats"]
    assert (seen.clip_share, seen.near_clip_share, seen.host_mean, seen.drift) == (
        None,
        0.5,
        0.5,
        None,
    )
    assert (full["HiddenHealth"].h_nonfinite, full["HiddenHealth"].c_rms) == (2, 1.0)


def test_the_drift_is_from_the_first_round():
    first, now = (np.zeros(2), np.ones(2)), (np.asarray([1.0, 3.0]), np.asarray([1.0, 0.5]))
    assert scale_drift(now, first) == 2.0 + 0.25
    assert scale_drift(now, None) == 0.0
    assert scale_drift(None, None) is None
