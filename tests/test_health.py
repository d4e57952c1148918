"""Gradient health and ratio, with numbers written out by hand; what an epoch adds up to."""

import pytest
import torch

from morphogen.rules.health import Gauge, health, ratio, smoothed
from morphogen.rules.tally import Minibatch, add, averages, nothing


def _gauge(norm=1.0, vanishing=0, exploding=0, tensors=4):
    return Gauge(*(torch.tensor([[float(value)]]) for value in (norm, vanishing, exploding, tensors)))


@pytest.mark.parametrize(
    ("vanishing", "exploding", "wanted"),
    [(0, 0, 1.0), (1, 0, 0.875), (4, 0, 0.5), (0, 1, 0.8), (0, 4, 0.2), (2, 2, 0.35), (4, 4, 0.0)],
)
def test_health_falls_with_the_share_of_vanishing_and_exploding_tensors(vanishing, exploding, wanted):
    found = health(_gauge(vanishing=vanishing, exploding=exploding), torch.tensor([[True]]))
    assert float(found) == pytest.approx(wanted)


def test_a_seed_that_is_not_sound_has_no_health():
    assert float(health(_gauge(), torch.tensor([[False]]))) == 0.0


def test_ratio_compares_gradients_per_root_parameter():
    args = (torch.tensor(2.0), torch.tensor(100), torch.tensor(1.0), torch.tensor(400))
    assert float(ratio(*args)) == pytest.approx((2 / 10) / (1 / 20), rel=1e-6)


@pytest.mark.parametrize("at", range(4))
def test_ratio_is_zero_where_there_is_nothing_to_compare(at):
    args = [torch.tensor(2.0), torch.tensor(100), torch.tensor(1.0), torch.tensor(400)]
    args[at] = torch.zeros_like(args[at])
    assert float(ratio(*args)) == 0.0


def test_the_first_ratio_is_taken_as_it_is_and_later_ones_move_the_average():
    before, now = torch.tensor([3.0, 3.0]), torch.tensor([1.0, 1.0])
    found = smoothed(before, torch.tensor([True, False]), now)
    assert found.tolist() == pytest.approx([2.8, 1.0])


def _minibatch(loss, norm, finite=True, sound=True, broken=False):
    flags = torch.tensor([finite]), torch.tensor([norm]), torch.tensor([[sound]]), torch.tensor([[broken]])
    return Minibatch(torch.tensor([loss]), torch.tensor([0.5]), *flags)


def test_an_epoch_averages_its_finite_minibatches_and_remembers_the_others():
    tally = nothing(torch.zeros(1, 3), torch.zeros(1, 1))
    tally = add(tally, _minibatch(2.0, 3.0), _gauge(norm=1.0))
    tally = add(tally, _minibatch(4.0, 4.0, broken=True), _gauge(norm=7.0, vanishing=1))
    nan = float("nan")
    tally = add(tally, _minibatch(nan, nan, finite=False, sound=False), _gauge(norm=nan, exploding=4))
    mean = averages(tally)
    assert float(mean.loss) == pytest.approx(3.0)
    assert float(mean.accuracy) == pytest.approx(50.0)
    assert float(mean.norm) == pytest.approx(12.5**0.5)
    assert float(mean.seed_norm) == pytest.approx(5.0)
    assert float(mean.seed_health) == pytest.approx((1 + 0.875 + 0) / 3)
    assert mean.steady.tolist() == [[False]]
    assert (int(tally.finite), int(tally.total)) == (2, 3)
    assert bool(tally.vanishing & tally.exploding & tally.broken)


def test_an_epoch_without_a_finite_minibatch_has_zeros():
    nan = float("nan")
    tally = nothing(torch.zeros(1, 3), torch.zeros(1, 1))
    mean = averages(add(tally, _minibatch(nan, nan, finite=False, sound=False), _gauge(norm=nan)))
    assert [float(value) for value in mean[:4]] == [0.0, 0.0, 0.0, 0.0]
