"""Regimes: how long they last, what they show, and that nothing but key, episode and epoch decides
on them.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.spec import RunSpec, resolve
from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.regime_process import RegimeProcess
from morphogen.extras.regimes.regime_spec import RegimeSpec
from morphogen.state import rng

HORIZON = 24
SPEC = RegimeSpec(hazard=0.2, least=3, views={"plain": 1, "inverted": 2, "noisy": 1})


def process(spec=SPEC, horizon=HORIZON):
    settings = {"instance": {"classes": (10, 10)}, "observe": {"instance": []}}
    run = RunSpec(regime=spec, episode_length=horizon, **settings)
    return RegimeProcess(resolve(run), classes=10)


def numbers(spec=SPEC, *, envs=64, seed=0, first=0, episode=0):
    """The numbers of the regimes of all epochs, int64 [HORIZON, E]."""
    key, when = rng.env_keys(seed, first, envs), torch.full((envs,), episode)
    drawn = process(spec)
    return torch.stack([drawn.number(key, when, torch.full((envs,), t)) for t in range(HORIZON)])


def lengths(found):
    """Epochs of every regime that has ended, of all envs."""
    return [int((column == n).sum()) for column in found.T for n in range(int(column[-1]))]


@pytest.mark.slow
@given(
    hazard=st.sampled_from((0.0, 0.05, 0.5, 1.0)),
    least=st.integers(1, 9),
    episode=st.integers(0, 99),
    first=st.integers(0, 99),
)
def test_regimes_are_numbered_without_gaps_and_last_at_least_as_long_as_set(
    hazard, least, episode, first
):
    found = numbers(RegimeSpec(hazard=hazard, least=least), envs=5, episode=episode, first=first)
    steps = found.diff(dim=0)
    assert found[0].tolist() == [0] * 5
    assert set(steps.unique().tolist()) <= {0, 1}
    assert min(lengths(found), default=least) >= least


def test_with_hazard_0_nothing_changes_and_with_hazard_1_regimes_last_exactly_as_long_as_set():
    assert numbers(RegimeSpec(hazard=0.0)).eq(0).all()
    expected = [t // 3 for t in range(HORIZON)]
    assert numbers(RegimeSpec(hazard=1.0, least=3), envs=1)[:, 0].tolist() == expected


def test_the_share_of_regimes_that_end_as_soon_as_they_may_is_the_hazard():
    found = numbers(RegimeSpec(hazard=0.25, least=2), envs=4000)
    begins = (found[2] == 1).float().mean(), ((found[3] == 1) & (found[2] == 0)).float().mean()
    assert float(begins[0]) == pytest.approx(0.25, abs=0.02)
    assert float(begins[1]) == pytest.approx(0.75 * 0.25, abs=0.02)


def test_a_regime_depends_on_key_episode_and_epoch_alone():
    alone = numbers(envs=1, first=5)
    assert torch.equal(numbers(envs=9, first=0)[:, 5:6], alone)
    assert not torch.equal(numbers(envs=1, first=5, episode=1), alone)
    assert not torch.equal(numbers(envs=1, first=5, seed=1), alone)


def test_a_longer_episode_has_the_same_beginning():
    key, when, at = (
        rng.env_keys(0, 0, 32),
        torch.zeros(32, dtype=torch.int64),
        torch.full((32,), 11),
    )
    short, long = (process(horizon=horizon).number(key, when, at) for horizon in (12, 150))
    assert torch.equal(short, long)


def regime_at(epoch, *, envs=2000, spec=SPEC):
    key, when = rng.env_keys(0, 0, envs), torch.zeros(envs, dtype=torch.int64)
    return process(spec).regime(key, when, torch.full((envs,), epoch))


def test_views_are_drawn_by_their_weights_and_stay_for_a_regime():
    found = regime_at(0)
    shares = {view.name: float((found.view == int(view)).float().mean()) for view in View}
    assert shares == pytest.approx(
        {"PLAIN": 0.25, "INVERTED": 0.5, "TURNED": 0, "HALF": 0, "NOISY": 0.25}, abs=0.04
    )
    later = regime_at(1)
    assert torch.equal(later.view, found.view)


def test_classes_are_those_of_the_view_and_stay_for_a_regime():
    settings = {"least": 3, "views": {"noisy": 1}, "classes": (3, 9), "noisy_classes": (2, 2)}
    spec = RegimeSpec(**settings)
    found, later = regime_at(0, spec=spec), regime_at(1, spec=spec)
    noisy = found.view == int(View.NOISY)
    assert found.classes is not None
    assert found.classes[noisy].unique().tolist() == [2]
    assert found.classes[~noisy].unique().tolist() == [*range(3, 10)]
    assert torch.equal(found.classes, later.classes)
    assert torch.equal(found.order, later.order)
    assert process(spec).class_ranges((10, 10)) == ((3, 9), (2, 2))


def test_another_regime_is_another_draw():
    before, after = regime_at(0), regime_at(20)
    changed = after.number > before.number
    assert changed.float().mean() > 0.9
    same = (after.view == before.view)[changed].float().mean()
    assert float(same) == pytest.approx(0.25**2 + 0.5**2 + 0.25**2, abs=0.04)


def test_weights_of_0_are_plain_images():
    assert RegimeSpec(views={"plain": 0}).views.used == (View.PLAIN,)
