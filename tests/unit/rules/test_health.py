"""Gradient health and ratio, with numbers written out by hand; what an epoch adds up to."""

import pytest
import torch

from morphogen.rules.health import GradStats, gradient_health, gradient_ratio, moving_average
from morphogen.steps import minibatch_tally
from morphogen.steps.minibatch_tally import MinibatchStats


def _gauge(norm=1.0, vanishing=0, exploding=0, tensors=4):
    return GradStats(
        *(torch.tensor([[float(value)]]) for value in (norm, vanishing, exploding, tensors))
    )


@pytest.mark.parametrize(
    ("vanishing", "exploding", "wanted"),
    [(0, 0, 1.0), (1, 0, 0.875), (0, 1, 0.8), (4, 4, 0.0)],
)
def test_health_falls_with_the_share_of_vanishing_and_exploding_tensors(
    vanishing, exploding, wanted
):
    found = gradient_health(
        _gauge(vanishing=vanishing, exploding=exploding), torch.tensor([[True]])
    )
    assert float(found) == pytest.approx(wanted)


def test_a_seed_that_is_not_sound_has_no_health():
    assert float(gradient_health(_gauge(), torch.tensor([[False]]))) == 0.0


def test_ratio_compares_gradients_per_root_parameter():
    args = (torch.tensor(2.0), torch.tensor(100), torch.tensor(1.0), torch.tensor(400))
    assert float(gradient_ratio(*args)) == pytest.approx((2 / 10) / (1 / 20), rel=1e-6)


@pytest.mark.parametrize("at", range(4))
def test_ratio_is_zero_where_there_is_nothing_to_compare(at):
    args = [torch.tensor(2.0), torch.tensor(100), torch.tensor(1.0), torch.tensor(400)]
    args[at] = torch.zeros_like(args[at])
    assert float(gradient_ratio(*args)) == 0.0


def test_the_first_ratio_is_taken_as_it_is_and_later_ones_move_the_average():
    before, now = torch.tensor([3.0, 3.0]), torch.tensor([1.0, 1.0])
    found = moving_average(before, torch.tensor([True, False]), now)
    assert found.tolist() == pytest.approx([2.8, 1.0])


def _minibatch(loss, norm, finite=True):
    return MinibatchStats(*(torch.tensor([value]) for value in (loss, 0.5, finite, norm)))


def test_an_epoch_averages_its_finite_minibatches():
    sums = minibatch_tally.empty_tally(torch.zeros(1, 3))
    nan = float("nan")
    for seen in (_minibatch(2.0, 3.0), _minibatch(4.0, 4.0), _minibatch(nan, nan, finite=False)):
        sums = minibatch_tally.add_minibatch(sums, seen)
    loss, accuracy, norm = minibatch_tally.env_averages(sums)
    assert float(loss) == pytest.approx(3.0)
    assert float(accuracy) == pytest.approx(50.0)
    assert float(norm) == pytest.approx(12.5**0.5)
    assert (int(sums.finite), int(sums.total)) == (2, 3)


def test_an_epoch_averages_the_sound_minibatches_of_a_seed_and_remembers_the_others():
    yes, no = torch.tensor([[True]]), torch.tensor([[False]])
    sums = minibatch_tally.empty_seed_tally(torch.zeros(1, 3), torch.zeros(1, 1))
    assert not bool(sums.vanishing | sums.exploding | sums.skipped)
    sums = minibatch_tally.add_seed_stats(sums, _gauge(norm=1.0), yes, no)
    sums = minibatch_tally.add_seed_stats(sums, _gauge(norm=7.0, vanishing=1), yes, yes)
    sums = minibatch_tally.add_seed_stats(sums, _gauge(norm=float("nan"), exploding=4), no, no)
    norm, health, all_finite = minibatch_tally.seed_averages(sums, torch.tensor([3]))
    assert float(norm) == pytest.approx(5.0)
    assert float(health) == pytest.approx((1 + 0.875 + 0) / 3)
    assert all_finite.tolist() == [[False]]
    assert bool(sums.vanishing & sums.exploding & sums.skipped)
