"""Events of an epoch and of a round against records counted step by step."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import epochs_run, round_record

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.extras.statistics.round_statistics import RoundStatistics
from morphogen.extras.statistics.statistic_kinds import ObservationStats
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.vocab.action import HEADS, RELEVANT, Op

lifetimes = given(seed=st.integers(0, 10**6), envs=st.integers(1, 4), epochs=st.integers(1, 12))


def round_of(records, known, metrics=None, first=None):
    monitor = RoundStatistics(RunPlan(known, TelemetrySpec(), 1, {}))
    monitor.state = first or {}
    summary: Any = None
    finished = FinishedRound(round_record(records, known), summary, (), metrics or {})
    return {one.name: one.data for one in monitor.end_round(finished)}


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


def test_a_reward_that_is_not_finite_counts_for_nothing():
    records, known = epochs_run(1, 2, 3)
    records[1]["reward"] = np.asarray([np.nan, np.inf])
    total = round_of(records, known)["RewardSummary"].total
    finite = [float(x) for t in (0, 2) for x in records[t]["reward"]]
    assert (total["mean"], total["max"]) == pytest.approx((np.mean(finite), max(finite)), rel=1e-6)


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
    first = {"mean": [0.0, 0.0], "std": [1.0, 1.0]}
    now = {"normaliser.mean": np.asarray([1.0, 3.0]), "normaliser.std": np.asarray([1.0, 0.5])}
    for before, drift in ((first, 2.0 + 0.25), (None, 0.0)):
        assert round_of(*epochs_run(0, 1, 1), now, before)["ObservationStats"].drift == drift
