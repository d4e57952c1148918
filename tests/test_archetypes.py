"""Scripted growth policies on synthetic learning curves: which of them a rule prefers."""

import itertools
import math

import pytest
import torch
from scenes import discount, inputs, play

from morphogen.rules.rewards.table import build
from morphogen.vocab.spec import RewardSpec

STEPS, GAMMA, PRICE, BUDGET, PARAMS = 75, 0.995, 0.1, 20_000, 2000
FOSSILIZED, HELD, PRUNED = "F", "H", "P"
# name -> seeds as (slot, strength, step of germination, fate), and the step of a rollback
POLICIES: dict[str, tuple[tuple[tuple[int, float, int, str], ...], int]] = {
    "three good": (((2, 6, 4, FOSSILIZED), (1, 6, 26, FOSSILIZED), (0, 6, 48, FOSSILIZED)), 0),
    "good": (((0, 8, 10, FOSSILIZED),), 0),
    "good, other slot": (((1, 8, 10, FOSSILIZED),), 0),
    "wait only": ((), 0),
    "farm loop": (((1, -6, 10, PRUNED), (1, -6, 36, PRUNED)), 0),
    "good, never fossilized": (((0, 8, 10, HELD),), 0),
    "useless, held": (((0, 0, 10, HELD),), 0),
    "harmful, held": (((1, -4, 10, HELD),), 0),
    "useless, fossilized": (((0, 0, 10, FOSSILIZED),), 0),
    "harmful, fossilized": (((1, -4, 10, FOSSILIZED),), 0),
    "good, rolled back": (((0, 8, 10, FOSSILIZED),), 50),
}
RETURNS = {
    "three good": 0.498654,
    "good": 0.448374,
    "good, other slot": 0.448374,
    "wait only": 0.400313,
    "farm loop": 0.400313,
    "good, never fossilized": 0.400313,
    "useless, held": 0.400313,
    "harmful, held": 0.400313,
    "useless, fossilized": 0.393412,
    "harmful, fossilized": 0.365931,
    "good, rolled back": -0.782224,
}
COMMITTED = {"three good": 75.2588, "good": 65.9730, "wait only": 58.0085, "harmful, fossilized": 54.0263}
ORDER = {  # "=": equal to the one before, ">": at least a thousandth less
    "sparse": "three good > good = good, other slot > wait only = farm loop = good, never fossilized = useless, held"
    " = harmful, held > useless, fossilized > harmful, fossilized > good, rolled back",
}
ORDER["delta"] = ORDER["sparse"]


def alpha(age: int) -> float:
    """Training for ten steps, five steps of ramp, then full."""
    return min(1.0, max(0.0, (age - 10) / 5))


def world(seeds, n: int) -> dict[str, float]:
    """What is measured after step n."""
    host = 20 + 40 * (1 - math.exp(-n / 25))
    out = {"committed_acc": host, "clean_improvement": 0.0, "fossil_params": 0, "live_params": 0}
    for _, strength, born, fate in seeds:
        age = n - born
        if age < 0 or (fate == PRUNED and age >= 16):
            continue
        share = alpha(age) * strength * (1 - math.exp(-age / 12))
        kept = fate == FOSSILIZED and age >= 21
        out["clean_improvement"] += share
        out["live_params"] += PARAMS
        out["committed_acc"] += share if kept else 0.0
        out["fossil_params"] += PARAMS if kept else 0
    return out


def discounted_return(rule_name: str, policy: str) -> float:
    seeds, rollback = POLICIES[policy]
    length = rollback or STEPS
    rule = build(RewardSpec(rule=rule_name), param_budget=BUDGET, episode_length=STEPS, gamma=GAMMA)
    steps = [
        inputs(horizon=n == STEPS, rolled_back=n == rollback, param_price=PRICE, **world(seeds, n))
        for n in range(1, length + 1)
    ]
    rewards, _, _ = play(rule, steps)
    assert rewards.dtype == torch.float64
    return discount(rewards, GAMMA).item()


@pytest.mark.parametrize("policy", list(COMMITTED))
def test_the_synthetic_worlds_end_where_they_should(policy):
    assert world(POLICIES[policy][0], STEPS)["committed_acc"] == pytest.approx(COMMITTED[policy], abs=5e-5)


@pytest.mark.parametrize("rule", list(ORDER))
@pytest.mark.parametrize("policy", list(POLICIES))
def test_each_archetype_earns_its_known_return(rule, policy):
    assert discounted_return(rule, policy) == pytest.approx(RETURNS[policy], abs=1e-6)


@pytest.mark.parametrize("rule", list(ORDER))
def test_difference_08_growing_what_helps_beats_every_other_archetype_in_this_order(rule):
    ranks = [group.split(" = ") for group in ORDER[rule].split(" > ")]
    assert sorted(name for group in ranks for name in group) == sorted(POLICIES)
    earned = [[discounted_return(rule, name) for name in group] for group in ranks]
    for group in earned:
        assert max(group) - min(group) < 1e-6
    for better, worse in itertools.pairwise(earned):
        assert min(better) - max(worse) >= 1e-3
