"""Statistics of a round against numbers counted by hand; the size of the memory."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support.made_up_rollouts import observation
from tensordict import TensorDict

from morphogen.extras.statistics.rollout_survey import (
    clip_shares,
    hidden_stats,
    normaliser_stats,
    raw_feature_stats,
    safe_norm,
    survey_rollout,
)
from morphogen.policy.observation_scaling import init_stats
from morphogen.ppo.moments import update_observation_stats
from morphogen.vocab.observation import ENV, FEATURES, INSTANCE, SLOT


def numbers(found):
    return {name: value.item() for name, value in found.items()}


def spread(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def test_blocks_are_those_of_the_table_of_features():
    seen = observation(4, 3)
    found = numbers(raw_feature_stats(seen))
    for block in ("host", "feedback"):
        own = [
            seen.env[t, e, i].item()
            for t in range(4)
            for e in range(3)
            for i, f in enumerate(ENV)
            if f.block == block
        ]
        assert (found[f"{block}_mean"], found[f"{block}_std"]) == pytest.approx(
            spread(own), abs=1e-5
        )
    assert (found["slot_mean"], found["slot_std"]) == pytest.approx(
        spread(seen.slots.flatten().tolist()), abs=1e-5
    )


def test_an_outlier_is_judged_by_its_own_feature():
    quiet = observation(10, 2)
    flat = {name: torch.zeros_like(getattr(quiet, name)) for name in ("env", "instance", "slots")}
    flat["env"][..., 0] = 1e6  # large, and always the same
    flat["env"][4, 1, 3] = 1.0  # small, and once in 20
    flat["slots"][..., 2, 7] = torch.tensor([1.0, -1.0])
    found = numbers(raw_feature_stats(quiet.replace(**flat)))
    assert found["outlier_share"] == pytest.approx(
        1 / (20 * (len(ENV) + len(INSTANCE) + 3 * len(SLOT)))
    )


def test_what_was_not_finite_is_a_share_of_all_elements():
    seen = observation(5, 2).replace(
        nonfinite=torch.tensor([[0, 3], [0, 0], [1, 0], [0, 0], [0, 0]])
    )
    assert numbers(raw_feature_stats(seen))["nonfinite_share"] == pytest.approx(
        4 / (10 * (52 + 8 + 3 * 46)), rel=1e-6
    )


def narrow(stats):
    """Statistics with mean 0 and deviation 1 of every feature."""
    return stats.apply(torch.ones_like).replace(
        {
            name: {
                **dict(stats[name].apply(torch.ones_like).items()),
                "mean": torch.zeros_like(stats[name, "mean"]),
            }
            for name in FEATURES
        }
    )


@pytest.mark.parametrize(
    ("size", "near", "at"), [(8.9, 0, 0), (9.1, 1, 0), (50.0, 1, 1), (-50.0, 1, 1)]
)
def test_near_and_at_the_limit_count_in_normalised_units(size, near, at):
    seen, which = (
        observation(2, 2),
        [i for i, f in enumerate(ENV) if f.normalised and f.flag is None],
    )
    empty = {name: torch.zeros_like(getattr(seen, name)) for name in ("env", "instance", "slots")}
    empty["env"][1, 0, which[2]] = size
    found = clip_shares(seen.replace(**empty), narrow(init_stats()))
    counted = 4 * (len(which) + sum(f.normalised and f.flag is None for f in INSTANCE))
    assert {name: valid.item() for name, (_, valid) in found.items()} == {
        "near_clip_share": True,
        "clip_share": True,
    }
    assert [
        found[name][0].item() * counted for name in ("near_clip_share", "clip_share")
    ] == pytest.approx([near, at])


def test_the_scale_is_that_of_the_features_that_are_normalised():
    seen = observation(30, 4)
    stats = update_observation_stats(init_stats(), seen)
    found = normaliser_stats(stats)
    wide = sum(feature.normalised for features in FEATURES.values() for feature in features)
    assert found["mean"].shape == found["std"].shape == (wide,)
    names = [
        feature.name for features in FEATURES.values() for feature in features if feature.normalised
    ]
    place = [feature.name for feature in ENV].index("best_acc")
    wanted = spread(seen.env[..., place].flatten().tolist())
    at = names.index("best_acc")
    assert (found["mean"][at].item(), found["std"][at].item()) == pytest.approx(wanted, abs=1e-5)


def groups(found):
    return {name.partition(".")[0] for name, _ in found.items()}


def test_a_policy_without_memory_and_statistics_is_surveyed_all_the_same():
    bare = survey_rollout(observation(2, 3), TensorDict({}, batch_size=[3]), None, None)
    assert groups(bare) == {"observation"}
    hidden = TensorDict({"h": torch.ones(3, 4), "c": torch.zeros(3, 4)}, batch_size=[3])
    stats = init_stats()
    full = survey_rollout(observation(2, 3), hidden, stats, stats)
    assert groups(full) == {"observation", "normaliser", "hidden"}
    assert (full["hidden.h_rms"].item(), full["hidden.c_abs_max"].item()) == (1.0, 0.0)


def test_the_memory_of_one_env_does_not_hide_in_the_mean():
    hidden = torch.zeros(2, 4, 8)
    hidden[:, 1] = 3.0
    hidden[0, 2, 5], hidden[1, 2, 5] = math.nan, math.inf
    found = hidden_stats(hidden)
    wanted = {"rms": 1.5, "env_rms_mean": 0.75, "env_rms_max": 3.0, "abs_max": 3.0, "nonfinite": 2}
    assert {name: size.item() for name, size in found.items()} == pytest.approx(wanted)


@given(
    scale=st.floats(1e-30, 1e15),
    values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9),
)
@example(scale=1e-30, values=[3.0, 4.0])
def test_a_norm_scales_with_what_it_is_of(scale, values):
    x = torch.tensor(values)
    wanted = math.sqrt(sum(value**2 for value in x.double().tolist())) * scale
    assert safe_norm(x * scale).item() == pytest.approx(wanted, rel=1e-4, abs=1e-37)
