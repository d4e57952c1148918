"""Signals of an env: histories, plateau, stability, best values."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_measurements import make_attribution

from morphogen.config.groups import SignalSpec
from morphogen.rules.signals import recent_min_accuracy, update_signals
from morphogen.state import schema
from morphogen.state.env import Signals
from morphogen.testing.builders.scenes import make_sizes

SPEC = SignalSpec()
NAN = float("nan")
losses = st.one_of(st.floats(0.015625, 8.0, width=32), st.sampled_from([NAN, math.inf, 0.0]))
measurements = st.lists(st.tuples(losses, st.integers(0, 100).map(float)), min_size=1, max_size=12)


def blank(envs: int = 1) -> Signals:
    return schema.empty_part("signals", make_sizes(envs, 3))


def seen(signals: Signals, loss: float, accuracy: float, *, spec=SPEC, **more) -> Signals:
    return update_signals(
        signals, torch.tensor([loss]), make_attribution([accuracy], **more), spec=spec
    )


def after(rows, *, spec=SPEC) -> Signals:
    signals = blank()
    for loss, accuracy in rows:
        signals = seen(signals, loss, accuracy, spec=spec)
    return signals


@given(rows=measurements)
def test_histories_changes_best_values_and_plateau_are_what_a_plain_loop_counts(rows):
    signals = after(rows)
    known = [row if math.isfinite(row[0]) else None for row in rows]
    for place, row in enumerate(([None] * 5 + known)[-5:]):
        loss, accuracy = row or (0.0, 0.0)
        assert signals.history_valid[0, place] == (row is not None)
        assert signals.loss_history[0, place] == loss
        assert signals.acc_history[0, place] == accuracy
    plateau, change = 0, None
    for before, now in itertools.pairwise(known):
        change = (before[0] - now[0], now[1] - before[1]) if before and now else None
        if change:
            plateau = plateau + 1 if change[1] < 0.5 else 0
    assert signals.plateau.item() == plateau
    assert signals.delta_valid.item() == (change is not None)
    found = signals.loss_delta.item(), signals.acc_delta.item()
    assert found == pytest.approx(change or (0.0, 0.0), abs=1e-6)
    if len(rows) <= 5 and any(known):
        fine = [row for row in known if row]
        assert signals.best_acc == max(accuracy for _, accuracy in fine)
        assert signals.best_loss == min(loss for loss, _ in fine)


@given(rows=measurements)
def test_no_number_is_ever_other_than_finite_and_unmeasured_is_zero(rows):
    signals = after(rows)
    for name, leaf in signals.to_dict().items():
        assert leaf.isfinite().all(), name
    if not signals.measured:
        assert signals.val_loss == signals.val_acc == signals.committed_acc == 0


def test_progress_of_exactly_the_threshold_is_progress():
    assert after([(1.0, 50.0), (1.0, 50.5)]).plateau == 0
    assert after([(1.0, 50.0), (1.0, 50.375)]).plateau == 1


@pytest.mark.parametrize(
    ("before", "now", "stable"),
    [
        (1.0, 0.98, 1),  # gains 2 %
        (1.0, 0.96, 0),  # gains too much to stand still
        (1.0, 1.04, 1),  # loses 4 %
        (1.0, 1.06, 0),
        (1e-9, 1e-9, 0),  # nothing to compare with
        (0.0, 0.0, 0),
    ],
)
def test_a_host_is_stable_while_its_loss_stands_nearly_still(before, now, stable):
    assert after([(before, 50.0), (now, 50.0)]).stable == stable


def test_the_bounds_of_stability_are_strict():
    spec = SignalSpec(stable_gain=0.25, stable_regression=0.5)
    assert after([(1.0, 50.0), (0.75, 50.0)], spec=spec).stable == 0
    assert after([(1.0, 50.0), (1.5, 50.0)], spec=spec).stable == 0
    assert after([(1.0, 50.0), (1.25, 50.0)], spec=spec).stable == 1


def test_the_latch_needs_enough_stable_epochs_in_a_row_and_never_opens():
    still = [(1.0, 50.0)]
    assert not after(still * 3).stabilized
    assert after(still * 4).stabilized
    assert after(still * 9).stable == 3  # behind the latch the count rests
    assert not after(still * 3 + [(NAN, 0.0)] + still * 3).stabilized
    assert after(still * 4 + [(5.0, 1.0), (NAN, 0.0)]).stabilized
    assert after(still, spec=SignalSpec(stable_epochs=0)).stabilized


def test_a_broken_measurement_resets_stability_and_leaves_plateau_and_best_values():
    before = after([(1.0, 50.0)] * 3)
    broken = seen(before, NAN, 80.0)
    assert broken.stable == 0
    assert broken.plateau == before.plateau == 2
    assert (broken.best_acc, broken.best_loss) == (before.best_acc, before.best_loss)
    assert broken.history_valid.sum() == before.history_valid.sum() == 3


def test_an_unmeasured_improvement_is_carried():
    measured = seen(blank(), 1.0, 50.0, clean=[4.0])
    carried = seen(measured, 1.0, 51.0, clean=[0.0], measured=False)
    never = seen(blank(), 1.0, 50.0, clean=[0.0], measured=False)
    assert (carried.clean_improvement, carried.clean_valid) == (4.0, True)
    assert (never.clean_improvement, never.clean_valid) == (0.0, False)


@given(rows=measurements, epochs=st.integers(1, 5))
def test_the_recent_minimum_is_over_valid_measurements(rows, epochs):
    least = recent_min_accuracy(after(rows), epochs)
    fine = [accuracy for loss, accuracy in rows[-epochs:] if math.isfinite(loss)]
    assert least.item() == (min(fine) if fine else 0.0)


@given(rows=measurements)
def test_what_others_write_is_left_alone(rows):
    start = blank().replace(
        last_op=torch.tensor([3]), rollbacks=torch.tensor([2]), train_loss=torch.tensor([0.5])
    )
    signals = start
    for loss, accuracy in rows:
        signals = seen(signals, loss, accuracy)
    for name in (
        "last_op",
        "last_outcome",
        "rollbacks",
        "rolled_back",
        "train_loss",
        "train_acc",
        "train_measured",
    ):
        assert torch.equal(getattr(signals, name), getattr(start, name)), name
