"""Rules on anomalies: each fires for its cause and nothing else, whatever the numbers; and what raises the level."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_records import facts

from morphogen.config.telemetry_spec import AnomalyLimits, TelemetrySpec
from morphogen.telemetry.anomaly import (
    AnomalyMonitor,
    AnomalyState,
    Finding,
    RoundCounts,
    accuracy_drop,
    accuracy_trend,
    detailed_epochs,
    detect,
    entropy_findings,
    find_anomalies,
    lasting_findings,
    valid_metrics,
)
from morphogen.telemetry.kinds.round import PerformanceDropped
from morphogen.telemetry.return_gap import return_gap
from morphogen.vocab.action import HEADS, Op
from morphogen.vocab.stage import Fault, Stage

LIMITS = AnomalyLimits()._asdict()

SPEC = TelemetrySpec(plateau_threshold=0.5, improvement_threshold=2.0)
CALM = RoundCounts(round=3, envs=8, rollbacks=2, free=100, waits=95)
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
    **{f"hidden.{part}_{name}": value for part in "hc" for name, value in (("rms", 1e-6), ("env_rms_max", 10.0))},
    **{f"hidden.{part}_nonfinite": 0.0 for part in "hc"},
    **{f"entropy_head.{head}": LIMITS[f"entropy_{head}"] for head in HEADS},
}
DEVICE = {"device": "cuda:0", "reserved_bytes": 85, "total_bytes": 100}
LONG = AnomalyState(low=dict.fromkeys(HEADS, 2), first=dict.fromkeys(HEADS, 1.0), waits=2, gradient=1.0)

floats = st.floats(allow_nan=True, allow_infinity=True)
kinds = st.sampled_from(sorted(HEALTHY))


def kinds_of(update=HEALTHY, *, counts=CALM, watch=LONG, devices=(DEVICE,), spec=SPEC):
    return [one.kind for one in find_anomalies(counts, update, watch, spec, devices)[0]]


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
    ("numeric entropy_nonfinite", {"entropy_head.tempo": math.nan}),
]


@pytest.mark.parametrize(("wanted", "change"), CAUSES, ids=[f"{kind} {change}" for kind, change in CAUSES])
def test_a_rule_fires_for_its_cause_and_no_other_does(wanted, change):
    update = {name: value for name, value in {**HEALTHY, **change}.items() if value is not None}
    assert kinds_of(update) == wanted.split()


@pytest.mark.parametrize(("round", "wanted"), [(0, []), (1, []), (2, ["gradient_drift", "observation_clipped"])])
def test_what_is_compared_with_the_rounds_before_is_judged_once_there_are_two(round, wanted):
    update = {**HEALTHY, "gradient_norm": 9.0, "observation.clip_share": 0.5}
    assert kinds_of(update, counts=CALM._replace(round=round)) == wanted


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        ("envs_nonfinite", {"skipped": 1}),
        ("rollbacks", {"rollbacks": 3}),
        ("wait_only", {"waits": 96}),
        ("", {"free": 0, "waits": 0}),
    ],
)
def test_counts_of_a_round_are_judged_per_env_and_per_free_step(wanted, change):
    assert kinds_of(counts=CALM._replace(**change)) == wanted.split()


def test_what_was_not_measured_is_no_anomaly():
    assert kinds_of({}, devices=()) == []
    update = valid_metrics({"kl": np.float64(9.0), "kl_valid": np.bool_(False), "ratio_max": np.float64(math.nan)})
    assert list(update) == ["ratio_max"]


def test_a_finding_says_how_severe_it_is_and_names_value_limit_and_subject():
    update = {**HEALTHY, "kl": 0.7, "entropy_head.op": 0.01, "hidden.h_env_rms_max": 11.0, "skip_streak": 3.0}
    found = find_anomalies(CALM, update, LONG, SPEC, ({**DEVICE, "reserved_bytes": 90},))[0]
    assert found == [
        Finding("kl_extreme", "error", 0.7, 0.5),
        Finding("update_skipped", "warning", streak=3),
        Finding("hidden_explosion", "warning", 11.0, 10.0, "h"),
        Finding("entropy_collapse", "warning", 0.01, 0.08, "op", 3),
        Finding("memory", "warning", 0.9, 0.85, "cuda:0"),
    ]


def test_limits_are_those_of_the_config():
    loose = TelemetrySpec(limits={"kl_spike": 0.2, "entropy_rounds": 4})
    assert kinds_of({**HEALTHY, "kl": 0.15, "entropy_head.op": 0.01}, spec=loose) == []


def as_update(row, heads):
    """The numbers of an update; entropies in the order of `HEADS`, None where a head was not used."""
    names = ("ratio_max", "ratio_min", "kl", "gradient_norm", "value_loss", "td_error_abs_mean", "free_steps")
    entropies = {f"entropy_head.{head}": x for head, x in zip(HEADS, heads, strict=True) if x is not None}
    return {**dict(zip(names, row, strict=True)), **entropies}


# Rounds of two healthy trainings with seed 0: digits (rounds 1, 8, 9, 10), whitebox (1, 4, 15, 19).
DIGITS = [
    ((4.65, 0.398, 0.053, 1.92, 0.27, 0.39, 150), (0.63, 1.0, 0.99, 0.99, 0.99, 0.0363, None, None)),
    ((8.69, 0.068, 0.070, 2.27, 0.08, 0.22, 204), (0.73, 0.96, 0.85, 0.86, 0.85, 0.0191, None, None)),
    ((7.52, 0.049, 0.069, 2.33, 0.06, 0.21, 216), (0.70, 0.91, 0.83, 0.86, 0.85, 0.0194, None, None)),
    ((5.11, 0.073, 0.058, 2.45, 0.06, 0.20, 206), (0.71, 0.85, 0.84, 0.84, 0.83, 0.0196, None, None)),
]
WHITEBOX = [
    ((1.98, 0.296, 0.018, 1.10, 0.5, 0.5, 580), (0.65, 1.0, 0.99, 1.0, 0.98, 0.09, 1.0, 1.0)),
    ((11.3, 0.012, 0.040, 3.30, 0.5, 0.5, 767), (0.50, 1.0, 0.92, 0.99, 0.91, 0.35, 0.93, 0.94)),
    ((11.8, 0.004, 0.055, 1.68, 0.5, 0.5, 618), (0.45, 1.0, 0.46, 0.49, 0.51, 0.26, 0.90, 0.93)),
    ((4.65, 0.000, 0.050, 3.28, 0.5, 0.5, 574), (0.24, 1.0, 0.32, 0.42, 0.28, 0.21, 0.78, 0.90)),
]


@pytest.mark.parametrize("rounds", [DIGITS, WHITEBOX], ids=["digits", "whitebox"])
def test_recorded_healthy_rounds_raise_nothing(rounds):
    watch, kinds = AnomalyState(), []
    for round, row in enumerate(rounds):
        found, watch = find_anomalies(CALM._replace(round=round), as_update(*row), watch, SPEC)
        kinds += [one.kind for one in found]
    assert kinds == []


def test_a_policy_that_loses_its_entropy_is_an_alarm_and_a_head_that_settles_alone_is_none():
    first, settled = as_update(*DIGITS[0]), as_update(*DIGITS[1]) | {"entropy_head.slot": 0.01}
    collapsed = settled | {"entropy_head.op": 0.01}
    severities = []
    for late in (settled, collapsed):
        watch = AnomalyState()
        for round, update in enumerate([first, late, late, late]):
            found, watch = find_anomalies(CALM._replace(round=round), update, watch, SPEC)
        severities.append([(one.kind, one.subject, one.severity) for one in found])
    assert severities[0] == [("entropy_collapse", "slot", "info")]
    assert severities[1] == [("entropy_collapse", head, "warning") for head in ("op", "slot")]


@pytest.mark.parametrize(("start", "wanted"), [(0.0, []), (0.04, []), (1.0, ["style"])])
def test_an_entropy_is_judged_against_the_first_one_of_its_head(start, wanted):
    watch = AnomalyState()
    for x in (start, 0.01, 0.01, 0.01):
        found, watch = find_anomalies(CALM, {"entropy_head.style": x}, watch, SPEC)
    assert [one.subject for one in found] == wanted


@given(st.dictionaries(kinds, floats), st.dictionaries(st.sampled_from(HEADS), st.integers(0, 9)), floats)
def test_rules_take_any_number(update, low, average):
    found, watch = find_anomalies(CALM, update, AnomalyState(low=low, gradient=average), SPEC)
    assert all(one.severity in ("info", "warning", "error") for one in found)
    assert isinstance(watch, AnomalyState)


@given(st.lists(st.sampled_from((0.0, 0.07, 0.08, 0.1, 0.12, 0.13)), max_size=20))
def test_an_entropy_fires_below_its_limit_only_and_from_the_third_such_round_on(values):
    low, rounds = {}, 0
    for value in values:
        found, low = entropy_findings({"entropy_head.op": value}, low, LIMITS)
        rounds = 0 if value > 0.12 else rounds + (value < 0.08)
        assert bool(found) == (value < 0.08 and rounds >= 3)


def test_an_entropy_that_is_no_number_leaves_the_streak():
    _, low = entropy_findings({"entropy_head.op": 0.01}, {}, LIMITS)
    late, _ = entropy_findings({"entropy_head.op": 0.01}, {"op": 5}, LIMITS, decided=True)
    assert [one.severity for one in late] == ["info"]
    found, after = entropy_findings({"entropy_head.op": math.inf}, low, LIMITS)
    assert (found[0].kind, found[0].subject, after) == ("entropy_nonfinite", "op", {"op": 1})


def test_what_is_imitated_may_be_decided_and_what_is_learned_afterwards_starts_from_there():
    watch, found = AnomalyState(), []
    for round, imitates in enumerate([True] * 5 + [False] * 8):
        update = {"entropy_head.op": 0.9 if round == 0 else 0.002 if round < 9 else 2e-7}
        one, watch = find_anomalies(CALM._replace(round=round, imitates=imitates, waits=0), update, watch, SPEC)
        found.append([x.kind for x in one])
    assert watch.first == {"op": 0.002}
    assert found == [[]] * 11 + [["entropy_collapse"]] * 2
    broken, _ = find_anomalies(CALM._replace(imitates=True, waits=0), {"entropy_head.op": math.nan}, watch, SPEC)
    assert [one.kind for one in broken] == ["numeric", "entropy_nonfinite"]


def test_a_monitor_knows_the_rounds_of_imitation():
    own = AnomalyMonitor(facts(2, 2), SPEC, rounds=9, imitated=2)
    calm = [record(rolled_back=np.zeros(2, dtype=bool))] * 2
    for round, known in ((0, {}), (1, {}), (2, {"op": 0.5})):
        own.end_round(round, columns(*calm), {"entropy_head.op": 0.5}, ())
        assert own.state.first == known


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
def test_a_drop_is_more_than_the_scatter_of_the_worlds_of_the_rounds(group, imitated, rounds, lost, drops):
    """4 errors are 9 points times the root of the group, and of 1.1 after ten rounds, of 2 after one."""
    monitor = AnomalyMonitor(facts(2, 2), SPEC, rounds=9, world_envs=group, imitated=imitated)
    means = {"accuracy_mean": 62.0 - lost, "rolling_accuracy": 60.0, "accuracy_std": 18.0}
    summary: Any = SimpleNamespace(**means, episodes_completed=64, round=8)
    events = monitor.trend_events(summary, [62.0] * rounds)
    found = [event.drop for event in events if isinstance(event, PerformanceDropped)]
    assert found == ([pytest.approx(lost / 62.0)] if drops else [])


def test_a_small_drop_is_no_event_however_certain():
    monitor = AnomalyMonitor(facts(2, 2), SPEC, rounds=9)
    means = {"accuracy_mean": 56.0, "rolling_accuracy": 60.0, "accuracy_std": 0.1}
    summary: Any = SimpleNamespace(**means, episodes_completed=64, round=8)
    events = monitor.trend_events(summary, [62.0] * 10)
    assert not [event for event in events if isinstance(event, PerformanceDropped)]


def test_waiting_only_is_told_from_the_third_round_in_a_row_on():
    watch, told = AnomalyState(), []
    for waits in (99, 99, 99, 99, 10, 99):
        found, watch = find_anomalies(CALM._replace(waits=waits), {}, watch, SPEC)
        told.append([one.streak for one in found])
    assert told == [[], [], [3], [4], [], []]


def test_a_full_device_is_told_once_in_ten_rounds():
    full, watch, told = {**DEVICE, "reserved_bytes": 86}, AnomalyState(), []
    for round in range(21):
        found, watch = find_anomalies(
            CALM._replace(round=round), {}, watch, SPEC, (full, DEVICE | {"device": "cuda:1"})
        )
        told += [(round, one.subject) for one in found]
    assert told == [(0, "cuda:0"), (10, "cuda:0"), (20, "cuda:0")]


def test_a_gradient_is_compared_with_its_own_past_and_the_first_one_with_nothing():
    _, watch = find_anomalies(CALM, {"gradient_norm": 4.0}, AnomalyState(), SPEC)
    skipped, watch = find_anomalies(CALM, {}, watch, SPEC)
    found, _ = find_anomalies(CALM, {"gradient_norm": 24.0}, watch, SPEC)
    assert (skipped, [one.kind for one in found], found[0].value) == ([], ["gradient_drift"], pytest.approx(5.0))


@pytest.mark.parametrize(
    ("accuracy", "rolling", "progress", "share"),
    [
        (45.0, 50.0, 0.1, 0.1),
        (45.1, 50.0, 1.0, None),
        (45.0, 50.0, 0.09, None),
        (0.0, 0.0, 1.0, None),
        (0.0, None, 1.0, None),
        (0.0, math.nan, 1.0, None),
    ],
)
def test_a_drop_is_a_tenth_of_the_rounds_before_once_a_tenth_of_the_run_is_over(accuracy, rolling, progress, share):
    assert accuracy_drop(accuracy, rolling, progress, LIMITS) == share


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


# --- epochs -----------------------------------------------------------------------------------------------------------


def record(**leaves):
    """Two envs with one slot in which a seed is being blended in; both choose freely."""
    stages = {
        name: np.full((2, 1), Stage.BLENDING) for name in ("stage_before", "stage_acted", "stage_ticked", "stage")
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
    for epoch, env, slot, finding in detect(columns(*records)):
        found[epoch].append((env, slot, finding.kind, finding.severity))
    return found


def test_a_suspicious_seed_is_told_once():
    found = seen(record(detectors=INFLATED), record(), record(detectors=INFLATED | RANSOM), record(detectors=RANSOM))
    assert found == [[(1, 0, "attribution_ratio", "info")], [], [(0, 0, "ransomware", "info")], []]


def test_the_next_seed_in_the_slot_is_another_one():
    reborn = record(detectors=INFLATED, stage_before=np.full((2, 1), Stage.DORMANT))
    reborn["stage_acted"] = np.full((2, 1), Stage.GERMINATED)
    assert [len(one) for one in seen(record(detectors=INFLATED), reborn)] == [1, 1]


def test_a_seed_that_is_born_after_an_alarm_and_is_quiet_first_is_told_later():
    born = record(stage_before=np.full((2, 1), Stage.DORMANT), stage_acted=np.full((2, 1), Stage.GERMINATED))
    assert [len(one) for one in seen(record(detectors=INFLATED), born, record(detectors=INFLATED))] == [1, 0, 1]


def test_what_one_seed_does_is_told_with_its_number_and_is_no_alarm():
    held = detect(columns(record(detectors=RANSOM, contribution=np.array([[1.0], [0.0]]))))
    assert held == [(0, 0, 0, Finding("ransomware", "info", -0.5, -0.2))]
    ratio = detect(columns(record(detectors=INFLATED, detector_ratio=np.array([[0.0], [7.5]]))))
    assert ratio == [(0, 1, 0, Finding("attribution_ratio", "info", 7.5, 5.0))]


def lasting(updates, gaps=None):
    """Alarms of rounds in a row."""
    streaks, seen = {}, []
    for update, gap in zip(updates, gaps or [None] * len(updates), strict=True):
        found, streaks = lasting_findings(update, gap, streaks, LIMITS)
        seen.append([(one.kind, one.streak) for one in found])
    return seen


def test_a_policy_that_does_not_move_is_an_alarm_from_the_third_round_on():
    still = {"kl": 0.0, "steps_done": 8.0}
    assert lasting([still] * 4) == [[], [], [("policy_frozen", 3)], [("policy_frozen", 4)]]
    assert lasting([still, still, {"kl": 0.01, "steps_done": 8.0}, still]) == [[]] * 4
    assert lasting([still, still, {"kl": 0.0, "steps_done": 0.0}, still])[-1] == [("policy_frozen", 3)]


def test_a_critic_that_explains_nothing_is_an_alarm_from_the_tenth_round_on():
    blind = {"explained_variance": 0.01}
    assert lasting([blind] * 10)[-2:] == [[], [("critic_blind", 10)]]
    assert lasting([*[blind] * 9, {"explained_variance": 0.2}, blind])[-1] == []
    assert lasting([*[blind] * 9, {}, blind])[-1] == [("critic_blind", 10)]  # not measured


def test_returns_at_another_discount_are_an_alarm_whatever_their_sign():
    assert lasting([{}] * 3, [0.7, -0.7, 0.6])[-1] == [("return_mismatch", 3)]
    assert lasting([{}] * 3, [0.7, 0.4, 0.6])[-1] == []


def test_the_gap_is_between_all_returns_and_those_of_the_learner():
    reward, ended = np.array([[0.0, 1.0], [2.0, 4.0]]), np.array([[False, True], [False, False]])
    # Returns at .5: 1 and 2 of the first env; 1, whose episode ends there, and 4 of the second.  Their mean is 2.
    assert return_gap(reward, ended, {"return_mean": 1.4, "return_std": 2.0}, 0.5) == pytest.approx(0.3)
    assert return_gap(reward, ended, {"return_mean": 0.4}, 0.5) is None
    assert return_gap(reward * np.nan, ended, {"return_mean": 0.4, "return_std": 2.0}, 0.5) is None
    assert return_gap(reward, ended, {}, 0.5) is None


def test_a_kl_up_to_the_stop_of_the_updates_is_intended():
    update = {"kl": 0.14, "ratio_max": 9.0}
    for stop, kinds in ((0.0, {"ratio_explosion", "kl_spike"}), (0.15, set())):
        found, _ = find_anomalies(RoundCounts(9, 4, kl_stop=stop), update, AnomalyState(), SPEC)
        assert {one.kind for one in found} == kinds


def monitor():
    return AnomalyMonitor(facts(2, 2), SPEC, rounds=4)


def test_a_round_counts_sick_envs_once_and_waits_where_there_was_a_choice():
    waits, forced = np.zeros((2, 8), dtype=int), np.array([False, True])
    calm = {"rolled_back": np.zeros(2, dtype=bool)}
    faults = np.array([Fault.SEED_SKIPPED, Fault.SKIPPED_STEP | Fault.VALIDATION])
    epochs = (record(fault=faults, **calm), record(fault=faults, action=waits, forced=forced, **calm))
    own = monitor()
    found = own.end_round(4, columns(*epochs), {}, ())
    assert [(one.data.kind, one.data.value) for one in found.events] == [("envs_nonfinite", 0.5)]
    assert own.state.waits == 0, "one of three choices was to wait"
    idle = [record(action=waits, **calm)] * 2
    assert own.end_round(5, columns(*idle), {}, ()).kinds == ()
    assert own.state.waits == 1


def test_causes_stand_at_their_epochs_and_those_of_the_round_at_its_last():
    back = {"rolled_back": np.array([True, False])}
    epochs = (record(**back), record(detectors=RANSOM, rolled_back=np.zeros(2, dtype=bool)))
    found = monitor().end_round(4, columns(*epochs), {"kl": np.float64(0.7)}, ())
    assert found.causes == {0: ["RolledBack"], 1: ["kl_extreme", "rollbacks"]}
    assert found.kinds == ("kl_extreme", "rollbacks")


# --- escalation -------------------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 7), st.integers(1, 9))
def test_the_level_is_raised_in_so_many_epochs_after_a_cause_and_up_to_it_in_its_round(causes, length, epochs):
    spec, raised, levels = TelemetrySpec(level="minimal", escalation_epochs=length), 0, []
    rounds = [causes[at : at + epochs] for at in range(0, len(causes), epochs)]
    for one in rounds:
        detailed, raised = detailed_epochs(np.array(one), raised, spec)
        levels += detailed.tolist()
    for t, level in enumerate(levels):
        start, end = t // epochs * epochs, min((t // epochs + 1) * epochs, len(causes))
        after = any(causes[max(0, t - length) : t])
        before = any(causes[max(t, start) : min(t + length, end)])
        assert level == (after or before)


@pytest.mark.parametrize("fields", [{"escalate": False}, {"level": "off"}, {"level": "debug"}])
def test_a_level_that_may_not_or_cannot_rise_stays(fields):
    spec = TelemetrySpec(**fields)
    detailed, raised = detailed_epochs(np.array([True, False]), 2, spec)
    assert (detailed.tolist(), raised) == ([spec.level == "debug"] * 2, 0)
