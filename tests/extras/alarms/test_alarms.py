"""Alarms: each fires for its cause and nothing else, whatever the numbers."""

import math
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import facts

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.extras.alarms.alarm_table import ALARMS, judge
from morphogen.extras.alarms.limits import AlarmLimits
from morphogen.extras.alarms.return_gap import return_gap
from morphogen.extras.alarms.round_alarms import (
    RoundAlarms,
    accuracy_trend,
    valid_metrics,
)
from morphogen.extras.alarms.seed_signs import first_signs
from morphogen.log.monitors import FinishedRound, RunPlan
from morphogen.log.round_record import RoundRecord
from morphogen.vocab.action import HEADS, Op
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import Stage

LIMITS = vars(AlarmLimits())

SPEC = TelemetrySpec(plateau_threshold=0.5, improvement_threshold=2.0)
HEALTHY = {
    "ratio_max": 5.0,
    "ratio_min": 0.1,
    "kl": 0.1,
    "value_loss": 5.0,
    "td_error_abs_mean": 5.0,
    "free_steps": 100.0,
    "skip_streak": 0.0,
    "gradient_norm": 1.0,
    "behaviour_gap": 1e-3,
    "observation.clip_share": 0.01,
    **{
        f"hidden.{part}_{name}": value
        for part in "hc"
        for name, value in (("rms", 1e-6), ("env_rms_max", 10.0))
    },
    **{f"hidden.{part}_nonfinite": 0.0 for part in "hc"},
    **{f"entropy_head.{head}": LIMITS[f"entropy_{head}"] for head in HEADS},
}
DEVICE = {"device": "cuda:0", "reserved_bytes": 85, "total_bytes": 100}
STREAKS = {**{f"entropy_head.{head}": 2 for head in HEADS}, "wait_share": 2}
FRESH = RoundAlarms(RunPlan(facts(2, 2), SPEC, 9, {})).state
LONG = {**FRESH, "streaks": STREAKS, "first": dict.fromkeys(HEADS, 1.0), "gradient": 1.0}

floats = st.floats(allow_nan=True, allow_infinity=True)
kinds = st.sampled_from(sorted(HEALTHY))


def monitor(spec=SPEC, state=FRESH, rounds=9, **plan):
    own = RoundAlarms(RunPlan(facts(2, 2), spec, rounds, {}, **plan))
    own.state = deepcopy(state)
    return own


def calm(**leaves):
    """Columns of a round of two epochs without rollbacks."""
    quiet = {"rolled_back": np.zeros(2, dtype=bool), **leaves}
    return columns(record(**quiet), record(**quiet))


def findings(update=HEALTHY, *, own=None, round=3, devices=(DEVICE,), leaves=()):
    own = own or monitor(state=LONG)
    finished = RoundRecord(facts(2, 2), round, calm(**dict(leaves)), {})
    summary: Any = SimpleNamespace()
    return own.end_round(FinishedRound(finished, summary, (), update, devices))


def kinds_of(update=HEALTHY, **more):
    return [one.data.kind for one in findings(update, **more)]


def test_numbers_at_their_limits_are_healthy_whatever_came_before():
    assert kinds_of() == []


CAUSES = [
    ("ratio_nonfinite numeric", {"ratio_max": math.nan, "ratio_min": 0.0}),
    ("ratio_nonfinite numeric", {"ratio_max": 9.0, "ratio_min": -math.inf}),
    ("ratio_explosion", {"ratio_max": 5.01, "kl": None}),
    ("ratio_explosion kl_spike", {"ratio_max": 50.0, "kl": 0.3}),
    ("ratio_collapse", {"ratio_min": 0.09, "kl": None}),
    ("ratio_collapse kl_extreme", {"ratio_min": 0.0, "kl": 0.6}),
    ("", {"ratio_max": 12.0, "ratio_min": 0.001, "kl": 0.1}),
    ("kl_spike", {"kl": 0.11}),
    ("kl_extreme", {"kl": 0.51}),
    ("value_collapse", {"value_loss": 5.01}),
    ("value_collapse", {"td_error_abs_mean": 5.01}),
    ("value_collapse", {"value_loss": 6.0, "td_error_abs_mean": 7.0}),
    ("", {"value_loss": 9.0, "free_steps": 0.0}),
    ("numeric", {"advantage_std": math.inf, "policy_loss": math.nan}),
    ("update_skipped", {"skip_streak": 2.0}),
    ("gradient_drift", {"gradient_norm": 5.01}),
    ("hidden_nonfinite", {"hidden.c_nonfinite": 1.0}),
    ("hidden_explosion", {"hidden.h_env_rms_max": 10.1}),
    ("hidden_vanishing", {"hidden.c_rms": 0.9e-6}),
    ("behaviour_gap", {"behaviour_gap": 1.1e-3}),
    ("observation_clipped", {"observation.clip_share": 0.011}),
    ("entropy_collapse", {"entropy_head.slot": 0.099}),
    ("entropy_nonfinite numeric", {"entropy_head.tempo": math.nan}),
]


@pytest.mark.parametrize(
    ("wanted", "change"), CAUSES, ids=[f"{kind} {change}" for kind, change in CAUSES]
)
def test_a_rule_fires_for_its_cause_and_no_other_does(wanted, change):
    update = {name: value for name, value in {**HEALTHY, **change}.items() if value is not None}
    assert kinds_of(update) == wanted.split()


@pytest.mark.parametrize(
    ("round", "wanted"), [(0, []), (1, []), (2, ["gradient_drift", "observation_clipped"])]
)
def test_drift_and_clipping_are_judged_once_there_are_two_rounds(round, wanted):
    update = {**HEALTHY, "gradient_norm": 9.0, "observation.clip_share": 0.5}
    assert kinds_of(update, round=round) == wanted


def test_a_number_that_was_not_measured_is_no_alarm():
    assert kinds_of({}, devices=()) == []
    update = valid_metrics(
        {"kl": np.float64(9.0), "kl_valid": np.bool_(False), "ratio_max": np.float64(math.nan)}
    )
    assert list(update) == ["ratio_max"]


def test_a_finding_has_severity_value_limit_subject_and_streak():
    update = {
        **HEALTHY,
        "kl": 0.7,
        "entropy_head.op": 0.01,
        "hidden.h_env_rms_max": 11.0,
        "skip_streak": 3.0,
    }
    found = findings(update, devices=({**DEVICE, "reserved_bytes": 90},))
    assert [(one.severity, *one.data.payload().values()) for one in found] == [
        ("error", "kl_extreme", 0.7, 0.5, None, 0),
        ("warning", "update_skipped", 3.0, 0.0, None, 0),
        ("warning", "hidden_explosion", 11.0, 10.0, "h", 0),
        ("warning", "entropy_collapse", 0.01, 0.08, "op", 3),
        ("warning", "memory", 0.9, 0.85, "cuda:0", 0),
    ]


def test_every_limit_of_the_table_is_a_setting_and_every_setting_is_used():
    others = (
        "entropy_clear",
        "entropy_until",
        "young_rounds",
        "memory",
        "memory_rounds",
        "drop",
        "drop_progress",
    )
    named = {name for alarm in ALARMS for name in (alarm.limit, alarm.rounds) if name}
    assert named | set(others) == set(LIMITS)


def test_a_policy_that_loses_its_entropy_is_an_alarm_and_a_head_that_settles_alone_is_none():
    first = {f"entropy_head.{head}": 0.9 for head in HEADS}
    settled = first | {"entropy_head.slot": 0.01}
    collapsed = settled | {"entropy_head.op": 0.01}
    severities = []
    for late in (settled, collapsed):
        own = monitor()
        for round, update in enumerate([first, late, late, late]):
            found = findings(update, own=own, round=round)
        severities.append([(one.data.kind, one.data.subject, one.severity) for one in found])
    assert severities[0] == [("entropy_collapse", "slot", "info")]
    assert severities[1] == [("entropy_collapse", head, "warning") for head in ("op", "slot")]


@pytest.mark.parametrize(("start", "wanted"), [(0.0, []), (0.04, []), (1.0, ["style"])])
def test_an_entropy_is_judged_against_the_first_one_of_its_head(start, wanted):
    own = monitor()
    for x in (start, 0.01, 0.01, 0.01):
        found = findings({"entropy_head.style": x}, own=own)
    assert [one.data.subject for one in found] == wanted


@given(
    st.dictionaries(kinds, floats),
    st.dictionaries(st.sampled_from(sorted(STREAKS)), st.integers(0, 9)),
    floats,
)
def test_alarms_take_any_number(update, streaks, average):
    known = average if math.isfinite(average) else None
    own = monitor(state={**FRESH, "streaks": streaks, "gradient": known})
    assert all(one.severity in ("info", "warning", "error") for one in findings(update, own=own))


def streak(values, metric="entropy_head.op", **more):
    """Flags of some consecutive rounds: an alarm fires."""
    streaks: dict[str, int] = {}
    numbers = [{} if value is None else {metric: value} for value in values]
    return [bool(judge(one, LIMITS, streaks, round=0, **more)) for one in numbers]


@given(st.lists(st.sampled_from((0.0, 0.07, 0.08, 0.1, 0.119, 0.13)), max_size=20))
def test_an_entropy_fires_below_its_limit_only_and_from_the_third_such_round_on(values):
    rounds, wanted = 0, []
    for value in values:
        rounds = 0 if value > 0.12 else rounds + (value < 0.08)
        wanted.append(value < 0.08 and rounds >= 3)
    assert streak(values) == wanted


def test_a_policy_that_imitates_may_be_decided_and_starts_to_learn_from_there():
    own, found = monitor(rounds=99, imitated=5), []
    for round in range(13):
        update = {"entropy_head.op": 0.9 if round == 0 else 0.002 if round < 9 else 2e-7}
        found.append(kinds_of(update, own=own, round=round))
    assert own.state["first"] == {"op": 0.002}
    assert found == [[]] * 11 + [["entropy_collapse"]] * 2
    assert kinds_of({"entropy_head.op": math.nan}, own=monitor(imitated=5)) == [
        "entropy_nonfinite",
        "numeric",
    ]


def drops_of(own, means, before):
    """Drops in a round of 64 episodes with some means."""
    finished = RoundRecord(facts(2, 2), 8, calm(), {})
    summary: Any = SimpleNamespace(**means, episodes_completed=64, round=8)
    events = own.end_round(FinishedRound(finished, summary, before, {}))
    return [event.data.drop for event in events if event.name == "PerformanceDropped"]


@pytest.mark.parametrize(
    ("group", "imitated", "rounds", "lost", "drops"),
    [
        (1, 0, 10, 10.0, True),
        (1, 0, 1, 12.0, False),
        (1, 0, 1, 13.0, True),
        (4, 0, 10, 18.0, False),
        (4, 0, 10, 20.0, True),
        (4, 9, 10, 10.0, True),  # in imitation each env plays its own world
    ],
)
def test_a_drop_is_more_than_the_scatter_of_the_worlds_of_the_rounds(
    group, imitated, rounds, lost, drops
):
    """4 errors are 9 points times the root of the group, and of 1.1 after ten rounds, of 2 after
    one.
    """
    own = monitor(siblings=group, imitated=imitated)
    means = {"accuracy_mean": 62.0 - lost, "rolling_accuracy": 60.0, "accuracy_std": 18.0}
    assert drops_of(own, means, [62.0] * rounds) == ([pytest.approx(lost / 62.0)] if drops else [])


def test_a_small_drop_is_no_event_however_certain():
    own = monitor()
    means = {"accuracy_mean": 56.0, "rolling_accuracy": 60.0, "accuracy_std": 0.1}
    assert drops_of(own, means, [62.0] * 10) == []


def test_a_full_device_is_reported_once_in_ten_rounds():
    full, own, found = {**DEVICE, "reserved_bytes": 86}, monitor(rounds=99), []
    for round in range(21):
        events = findings({}, own=own, round=round, devices=(full, DEVICE | {"device": "cuda:1"}))
        found += [(round, one.data.subject) for one in events]
    assert found == [(0, "cuda:0"), (10, "cuda:0"), (20, "cuda:0")]


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        (0.49, "plateau"),
        (-0.49, "plateau"),
        (0.5, None),
        (2.0, None),
        (2.1, "improvement"),
        (-2.1, "degradation"),
        (math.nan, None),
    ],
)
def test_a_trend_is_a_small_or_a_large_change_of_the_rolling_accuracy(delta, kind):
    assert accuracy_trend(delta, SPEC) == kind


# --- epochs
#
# ----------------------------------------------------------------------------


def record(**leaves):
    """Two envs with one slot in which a seed is being blended in; both choose freely."""
    stages = {
        name: np.full((2, 1), Stage.BLENDING)
        for name in ("stage_before", "stage_acted", "stage_ticked", "stage")
    }
    quiet = {
        **stages,
        "detectors": np.zeros((2, 1, 2), dtype=bool),
        "detector_ratio": np.zeros((2, 1)),
        "contribution": np.zeros((2, 1)),
        "contribution_valid": np.ones((2, 1), dtype=bool),
        "val_acc": np.array([60.0, 60.0]),
        "committed_acc": np.array([60.5, 60.5]),
        "skipped": np.array([0, 0]),
        "fault": np.array([0, 0]),
        "forced": np.array([False, False]),
        "reward": np.zeros(2),
        "action": np.full((2, 8), int(Op.ADVANCE)),
    }
    return quiet | leaves


INFLATED = np.array([[[False, False]], [[True, False]]])
RANSOM = np.array([[[False, True]], [[False, False]]])


def columns(*records):
    return {name: np.stack([one[name] for one in records]) for name in records[0]}


def seen(*records):
    found = [[] for _ in records]
    for epoch, env, slot, kind in np.argwhere(first_signs(columns(*records))).tolist():
        found[epoch].append((env, slot, DETECTORS[kind]))
    return found


def test_a_suspicious_seed_is_told_once():
    found = seen(
        record(detectors=INFLATED),
        record(),
        record(detectors=INFLATED | RANSOM),
        record(detectors=RANSOM),
    )
    assert found == [[(1, 0, "attribution_ratio")], [], [(0, 0, "ransomware")], []]


def test_a_seed_that_is_born_after_an_alarm_and_is_quiet_first_is_told_later():
    born = record(
        stage_before=np.full((2, 1), Stage.DORMANT), stage_acted=np.full((2, 1), Stage.GERMINATED)
    )
    assert [
        len(one) for one in seen(record(detectors=INFLATED), born, record(detectors=INFLATED))
    ] == [1, 0, 1]


def test_the_gap_is_between_all_returns_and_those_of_the_learner():
    reward, ended = np.array([[0.0, 1.0], [2.0, 4.0]]), np.array([[False, True], [False, False]])
    # Returns at .5: 1 and 2 of the first env; 1, whose episode ends there, and 4 of the second.
    # Their mean is 2.
    assert return_gap(reward, ended, {"return_mean": 1.4, "return_std": 2.0}, 0.5) == pytest.approx(
        0.3
    )
    assert return_gap(reward, ended, {"return_mean": 0.4}, 0.5) is None
    assert return_gap(reward * np.nan, ended, {"return_mean": 0.4, "return_std": 2.0}, 0.5) is None
    assert return_gap(reward, ended, {}, 0.5) is None


def test_a_kl_up_to_the_stop_of_the_updates_is_intended():
    update = {"kl": 0.14, "ratio_max": 9.0}
    for stop, kinds in ((0.0, ["ratio_explosion", "kl_spike"]), (0.15, [])):
        assert kinds_of(update, own=monitor(kl_stop=stop)) == kinds


def test_waits_are_counted_where_there_was_a_choice_and_reported_from_the_third_round_on():
    own, found = monitor(rounds=99), []
    waits = {"action": np.zeros((2, 8), dtype=int), "forced": np.array([False, True])}
    mixed = {"action": np.array([[int(Op.WAIT)] * 8, [int(Op.ADVANCE)] * 8])}
    for round, leaves in enumerate((waits, waits, waits, waits, mixed, waits)):
        found.append([one.data.streak for one in findings({}, own=own, round=round, leaves=leaves)])
    assert found == [[], [], [3], [4], [], []]
    forced = {**waits, "forced": np.array([True, True])}
    assert (
        findings({}, own=monitor(state={**FRESH, "streaks": {"wait_share": 9}}), leaves=forced)
        == []
    )
