"""State of `watch`: the fold over events agrees with them and stays small."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.handwritten_logs import (
    acted,
    anomaly,
    at_level,
    ended,
    episode,
    epoch,
    fossilized,
    germinated,
    moved,
    rolled_back,
    saved,
    started,
    summary,
    updated,
    whole,
)
from support.random_records import SLOTS as PLACES
from support.random_records import events_of, facts, live

from morphogen.analysis.watch.view import (
    MAX_ACTIONS,
    MAX_ALARMS,
    MAX_ENVS,
    MAX_NOTES,
    MAX_POINTS,
    ActionView,
    BoundedSeries,
    RunView,
    update_view,
)
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.kinds.run import RunResumed
from morphogen.vocab.stage import Stage


def seen(found):
    return reduce(update_view, found, RunView())


def drawn(values):
    return reduce(BoundedSeries.add, values, BoundedSeries())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=700))
def test_a_curve_stays_short_and_within_its_values(values):
    curve = drawn(values)
    assert len(curve.all_points) <= MAX_POINTS
    assert all(min(values) - 1e-6 <= point <= max(values) + 1e-6 for point in curve.all_points)
    assert (curve.count, curve.first, curve.last) == (len(values), values[0], values[-1])


@given(st.integers(1, 2_000))
def test_a_curve_that_rises_is_drawn_rising_from_end_to_end(count):
    points = drawn(map(float, range(count))).all_points
    assert list(points) == sorted(points)
    assert points[0] <= count / MAX_POINTS * 2
    assert points[-1] >= count - 1 - count / MAX_POINTS * 2


@given(st.lists(st.sampled_from([None, 1.0, 3.0]), max_size=300))
def test_what_was_not_measured_is_no_part_of_a_mean(values):
    assert all(point is None or 1.0 <= point <= 3.0 for point in drawn(values).all_points)


def test_a_curve_keeps_all_that_was_measured_as_long_as_there_is_room():
    assert drawn([1.0, None, 3.0]).all_points == (1.0, None, 3.0)


@given(seed=st.integers(0, 10**6), envs=st.integers(1, 4), epochs=st.integers(1, 25))
def test_the_view_shows_every_slot_as_it_is_after_every_epoch(seed, envs, epochs):
    _, records = live(seed, envs, epochs)
    view, known = seen([started(envs, epochs, slots=PLACES)]), facts(envs, epochs)
    every = events_of(records, known, level="minimal")
    for t, record in enumerate(records):
        view = reduce(update_view, [event for event in every if event.epoch == t], view)
        stages = [Stage(code).name for row in record["stage"] for code in row]
        assert [slot.stage for env in view.envs for slot in env.slots] == stages
        assert {name: n for name, n in view.stages.items() if n} == {name: stages.count(name) for name in stages}


def test_epochs_tell_accuracy_reward_actions_and_alphas_of_every_env():
    alphas = ((0.5, None), (None, None), (None, None))
    view = seen(
        [
            started(),
            *germinated(),
            epoch(0, 0, op_effective=("GERMINATE", "WAIT", "WAIT"), success=(True, True, False)),
            epoch(0, 1, alpha=alphas, contribution=alphas, reward=(0.5, None, 0.0)),
        ]
    )
    first, second, third = view.envs
    assert first.accuracy.all_points == (50.0, 51.0)
    assert second.accuracy.last == 51.1
    assert [env.reward for env in view.envs] == [0.75, 0.25, 0.25]
    assert first.actions == (ActionView("GERMINATE", True), ActionView("WAIT", True))
    assert third.actions[0] == ActionView("WAIT", False)
    assert (first.slots[0].alpha, first.slots[1].alpha) == (0.5, None)
    assert (view.round, view.epoch, first.params_ratio) == (0, 1, 1.5)


def test_a_new_round_begins_with_empty_hosts():
    view = seen([started(), *germinated(), epoch(0, 3), rolled_back(1, 0, 2)])
    assert {slot.stage for env in view.envs for slot in env.slots} == {"DORMANT"}
    assert view.stages == {"DORMANT": 6}
    assert [env.accuracy.count for env in view.envs] == [0, 0, 0]
    assert (view.round, view.epoch) == (1, 0)


def test_the_last_round_stays_to_be_seen_until_the_next_begins():
    view = seen([started(), *germinated(), epoch(0, 3), updated(0), summary(0), saved(1)])
    assert view.envs[0].slots[0].stage == "GERMINATED"
    assert (view.round, view.epoch, view.rounds_done) == (0, 3, 1)


def test_a_seed_that_is_kept_is_whole_even_where_no_alpha_is_recorded():
    view = seen([started(), *germinated(), moved("GERMINATED", "BLENDING"), moved("BLENDING", "HOLDING")])
    assert view.envs[0].slots[0].alpha == 1.0
    kept = seen([started(), *germinated(), *fossilized()]).envs[0].slots[0]
    assert (kept.stage, kept.blueprint, kept.alpha) == ("FOSSILIZED", "norm", 1.0)


@pytest.mark.parametrize(("level", "alpha"), [("normal", 0.5), ("minimal", None)])
def test_an_alpha_is_shown_as_long_as_epochs_tell_it_whatever_comes_first(level, alpha):
    """A seed that goes back from holding to blending has an alpha that only epochs know."""
    back = moved("HOLDING", "BLENDING", 0, 2)
    told = epoch(0, 2, alpha=((0.5, None), (None, None), (None, None)))
    for order in ([told, back], [back, told]):
        found = at_level([*germinated(), moved("GERMINATED", "HOLDING", 0, 1), *order], level)
        assert seen([started(level=level), *found]).envs[0].slots[0].alpha == alpha


def test_episodes_tell_what_epochs_did_not():
    low = seen([started(), episode(0, 1)])
    assert (low.envs[1].accuracy.all_points, low.envs[1].reward, low.envs[1].params_ratio) == ((60.0,), 0.75, 1.25)
    assert seen([started(), epoch(0, 3), episode(0, 1)]).envs[1].accuracy.all_points == (53.1,)


def test_rounds_make_curves_pace_and_what_is_left():
    view = seen([started(rounds=4), epoch(0, 3), updated(0), summary(0, 60.0), epoch(1, 1)])
    assert view.curves["accuracy %"].all_points == (60.0,)
    assert view.curves["KL"].last == 0.01
    assert view.progress == 1.5 / 4
    assert view.seconds_left == pytest.approx(12.0 * 2.5)
    assert seen([started()]).seconds_left is None


def test_what_is_out_of_the_ordinary_is_kept_apart_from_the_life_of_seeds():
    view = seen([started(), *germinated(), rolled_back(), anomaly(0), anomaly(0), anomaly(0, "wait_only", "info")])
    assert [(note.where, note.text) for note in view.alarms] == [
        ("1:2 env 1", "rolled back (chance), 2 seeds pruned"),
        ("1", "kl_spike: 0.2, limit 0.1"),
        ("1", "kl_spike: 0.2, limit 0.1"),
    ]
    assert [note.text.split()[0] for note in view.notes] == ["norm", "wait_only:"]
    assert view.anomalies == {"kl_spike": 2, "wait_only": 1}


def test_a_run_that_is_resumed_is_over_no_more():
    resumed = Envelope(RunResumed(checkpoint="checkpoints/x", cut_bytes=0, skipped=(), rounds=5))
    assert seen(whole()).ended is not None
    assert seen([*whole(), resumed]).ended is None


def test_progress_counts_the_rounds_that_a_resumed_run_was_extended_to():
    before = seen(whole()[:-1])
    assert before.started is not None
    extended = Envelope(
        RunResumed(checkpoint="checkpoints/x", cut_bytes=0, skipped=(), rounds=2 * before.started.rounds)
    )
    assert seen([*whole()[:-1], extended]).progress == pytest.approx(before.progress / 2)


@pytest.mark.slow
def test_a_view_is_small_however_many_envs_and_events():
    envs = 2 * MAX_ENVS
    found = [started(envs, epochs=500, slots=("r0c0",))]
    for t in range(200):
        found += [*germinated(0, t, t), epoch(0, t, envs, ("r0c0",)), rolled_back(0, t, 300)]
    view = seen(found)
    assert (len(view.envs), len(view.notes), len(view.alarms)) == (MAX_ENVS, MAX_NOTES, MAX_ALARMS)
    assert max(len(env.actions) for env in view.envs) == MAX_ACTIONS
    assert view.stages == {"DORMANT": envs - 200, "GERMINATED": 200}


def test_the_fold_writes_to_no_view():
    view = seen([started(), epoch(0, 0)])
    for event in [*germinated(), epoch(0, 1), summary(0), anomaly(0), acted(0), ended()]:
        before = repr(view)
        update_view(view, event)
        assert repr(view) == before
