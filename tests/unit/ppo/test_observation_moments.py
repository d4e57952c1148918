"""Observation statistics: exact merging, what counts as an entry, what is left alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_rollouts import observation, source

from morphogen.policy.observation_scaling import init_stats, normalise
from morphogen.ppo.moments import update_observation_stats
from morphogen.vocab.observation import ENV, FEATURES, SLOT, column_index

HAS_SEED = column_index(SLOT)["has_seed"]
MARKED = {name: [f.normalised for f in features] for name, features in FEATURES.items()}


def rows(*lead: int, slots: int = 2, seed: int = 0, scale: float = 3.0):
    """Rows with flags of 0 and 1, values 0 where the flag is 0, some slots empty, some rows not
    finite.
    """
    obs, draw = observation(*lead, slots=slots, seed=seed), source(seed)
    leaves = {}
    for name, features in FEATURES.items():
        leaf = getattr(obs, name) * scale + 5.0
        flags = sorted({f.flag for f in features if f.flag})
        where = {f.name: i for i, f in enumerate(features)}
        for flag in flags:
            leaf[..., where[flag]] = (torch.rand(leaf.shape[:-1], generator=draw) < 0.7).float()
        for i, feature in enumerate(features):
            if feature.flag:
                leaf[..., i] *= leaf[..., where[feature.flag]]
        leaves[name] = leaf
    return obs.replace(**leaves, finite=torch.rand(lead, generator=draw) < 0.9)


def entries(obs, name: str, i: int) -> torch.Tensor:
    """The entries of feature i that count, by hand."""
    features = FEATURES[name]
    leaf = getattr(obs, name)
    valid = obs.finite.unsqueeze(-1).expand(leaf.shape[:-1]) if name == "slots" else obs.finite
    if features[i].flag:
        flag = [f.name for f in features].index(features[i].flag)
        valid = valid & (leaf[..., flag] == 1)
    if name == "slots":
        valid = valid & (leaf[..., HAS_SEED] == 1)
    return leaf[..., i][valid].double()


@given(st.integers(0, 100), st.integers(1, 6), st.integers(0, 5))
def test_any_split_merged_in_any_order_is_one_pass_over_all(seed, cut, turn):
    whole = rows(7, 3, seed=seed)
    parts = [whole[:cut], whole[cut:]]
    parts = parts[::-1] if turn % 2 else parts
    merged = init_stats()
    for part in parts:
        merged = update_observation_stats(merged, part)
    for name in FEATURES:
        for i, marked in enumerate(MARKED[name]):
            x = entries(whole, name, i)
            assert merged[name, "count"][i] == (len(x) if marked else 0)
            if marked and len(x):
                assert merged[name, "mean"][i].item() == pytest.approx(
                    x.mean().item(), rel=1e-9, abs=1e-9
                )
                assert merged[name, "m2"][i].item() == pytest.approx(
                    (x - x.mean()).square().sum().item(), rel=1e-9, abs=1e-9
                )


@given(st.integers(0, 100))
def test_seen_features_get_mean_zero_and_variance_one_and_others_pass_bit_for_bit(seed):
    seen = rows(40, 5, seed=seed)
    found = normalise(update_observation_stats(init_stats(), seen), seen)
    for name in FEATURES:
        raw, leaf = getattr(seen, name), getattr(found, name)
        assert leaf.dtype == torch.float32
        for i, marked in enumerate(MARKED[name]):
            if not marked:
                assert torch.equal(leaf[..., i], raw[..., i])
                continue
            x = entries(found.replace(**{n: getattr(found, n) for n in FEATURES}), name, i)
            assert x.mean().abs() < 1e-3
            assert abs(x.var(unbiased=False).item() - 1) < 1e-3
            assert leaf[..., i].abs().max() <= 10


def test_an_entry_that_does_not_count_is_zero_and_changes_no_statistic():
    seen = rows(20, 4)
    stats = update_observation_stats(init_stats(), seen)
    found = normalise(stats, seen)
    assert (found.env[~seen.finite][:, torch.tensor(MARKED["env"])] == 0).all()
    empty = seen.slots[..., HAS_SEED] == 0
    assert (found.slots[empty][:, torch.tensor(MARKED["slots"])] == 0).all()
    planted = seen.clone()
    planted.env[~seen.finite] = 1e6
    flags = planted.slots[..., HAS_SEED].clone()
    planted.slots[empty] = 1e6
    planted.slots[..., HAS_SEED] = flags
    other = update_observation_stats(init_stats(), planted)
    assert all(torch.equal(stats[key], other[key]) for key in stats.keys(True, True))


def test_normalising_stored_rows_again_is_bitwise_what_acting_saw():
    seen = rows(6, 4)
    stats = update_observation_stats(init_stats(), rows(9, 4, seed=1))
    together = normalise(stats, seen)
    for t in range(6):
        step = normalise(stats, seen[t])
        assert all(
            torch.equal(getattr(step, name), getattr(together, name)[t]) for name in FEATURES
        )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_statistics_take_in_no_number_that_is_none_whatever_its_row_says(bad):
    """The rest of the row still counts: one element is missing, as if it had never been."""
    seen = rows(6, 4).replace(finite=torch.ones(6, 4, dtype=torch.bool))
    column = [feature.name for feature in ENV].index("best_acc")
    env = seen.env.clone()
    env[2, 3, column] = bad
    stats, whole = (
        update_observation_stats(init_stats(), seen.replace(env=env)),
        update_observation_stats(init_stats(), seen),
    )
    others = torch.cat(
        (seen.env[..., column].flatten()[:11], seen.env[..., column].flatten()[12:])
    ).double()
    assert stats["env", "count"][column] == 23
    torch.testing.assert_close(stats["env", "mean"][column], others.mean())
    torch.testing.assert_close(stats["env", "m2"][column], (others - others.mean()).square().sum())
    for name in ("count", "mean", "m2"):
        assert torch.equal(stats["env", name][:column], whole["env", name][:column])
