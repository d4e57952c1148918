"""Parts of the legacy rules: means, ramps, rents, drips, hindsight."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legacy_rows import SEEDS, few, points

from morphogen.extras.legacy_rewards import kernels as parts
from morphogen.extras.legacy_rewards.kernels import RentInputs, rent_and_shock_inputs
from morphogen.extras.legacy_rewards.settings import LegacyRewardSpec
from morphogen.vocab.stage import Stage

SPEC = LegacyRewardSpec()
positive = st.floats(1e-6, 1e6)


def real(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def grow(stage, alpha, params, was: RentInputs | None = None, host: int = 5000) -> RentInputs:
    """Rent and shock inputs of one env after another step."""
    before = (
        (real(*alpha)[None] * 0, torch.zeros(1, len(alpha), dtype=torch.int64))
        if was is None
        else was[2:]
    )
    now = torch.tensor([[int(s) for s in stage]]), real(*alpha)[None], torch.tensor([params])
    return rent_and_shock_inputs(now, before, host_params=torch.tensor([host]), spec=SPEC)


# means and discounts


@given(a=positive, b=positive)
def test_the_harmonic_mean_lies_between_the_minimum_and_twice_the_minimum(a, b):
    least = parts.combine(real(a), real(b), how="minimum")
    mean = parts.combine(real(a), real(b), how="harmonic")
    assert least == min(a, b)
    assert least * (1 - 1e-12) <= mean <= 2 * least * (1 + 1e-12)


@given(a=points, b=points, how=st.sampled_from(("harmonic", "minimum")))
def test_a_mean_needs_both_and_does_not_care_about_their_order(a, b, how):
    got = parts.combine(real(a), real(b), how=how)
    assert (got > 0) == (a > 0 and b > 0)
    assert got >= 0
    assert torch.equal(got, parts.combine(real(b), real(a), how=how))


# stages


@given(stage=st.sampled_from(SEEDS), epochs=st.integers(0, 20))
def test_a_stage_is_worth_more_the_higher_it_is_and_the_longer_it_lasts_up_to_a_cap(stage, epochs):
    codes = torch.tensor([int(s) for s in SEEDS])
    levels = parts.stage_potential(codes, torch.full_like(codes, epochs).double(), spec=SPEC)
    assert (levels.diff() > 0).all()
    kind = torch.tensor([int(stage)] * 2)
    now, later = parts.stage_potential(kind, real(epochs, epochs + 1), spec=SPEC)
    assert now <= later
    assert (now == later) == (0.3 * epochs >= 2)


@given(stage=st.sampled_from(Stage), previous=st.sampled_from(Stage), epochs=few, before=few)
def test_stage_shaping_looks_at_the_stage_before_only_in_the_first_moment(
    stage, previous, epochs, before
):
    codes = torch.tensor([int(stage)]), torch.tensor([int(previous)])
    got = parts.stage_pbrs(codes[0], real(epochs), codes[1], real(before), spec=SPEC, gamma=0.9)
    same = parts.stage_pbrs(
        codes[0], real(epochs), codes[0], real(epochs - 1), spec=SPEC, gamma=0.9
    )
    assert epochs == 0 or torch.equal(got, same)


# rent and shock


@given(steps=st.integers(1, 12), params=st.integers(1, 10_000))
def test_the_shock_of_a_ramp_falls_with_its_number_of_steps(steps, params):
    def shock(count: int) -> float:
        was, total = grow([Stage.BLENDING], [0.0], [params]), 0.0
        for n in range(1, count + 1):
            was = grow([Stage.BLENDING], [n / count], [params], was)
            total += was.alpha_delta_sq_sum.item()
        return total

    assert shock(steps + 1) < shock(steps)
    assert shock(steps) == pytest.approx(params / 5000 / steps)


@given(used=st.floats(0.0, 1e7), more=st.floats(1.0, 1e6), host=st.integers(1, 10**6))
def test_rent_is_a_cost_that_never_falls_with_growth_and_has_a_cap(used, more, host):
    paid = parts.log_rent(real(used, used + more), torch.tensor([host, host]), spec=SPEC)
    assert 0 >= paid[0] >= paid[1] >= -1.5
