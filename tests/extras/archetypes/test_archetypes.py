"""Scripted growth policies on synthetic learning curves: which of them a rule prefers."""

import itertools
import json
from dataclasses import asdict

import pytest
import torch
from support import slow_rules

from morphogen.cli import main
from morphogen.config.groups import RewardSpec
from morphogen.extras.archetypes import scripted_policies
from morphogen.extras.archetypes.scripted_policies import (
    ARCHETYPES,
    STEPS,
    TERMS,
    archetype_inputs,
    archetype_returns,
)
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import play_rule

POLICIES = list(ARCHETYPES.values())
# name -> committed accuracy at the end, discounted return of sparse and delta, of rent
WANTED = {
    "three good": (75.2588, 0.498654, 0.503424),
    "good": (65.9730, 0.448374, 0.448095),
    "good, other slot": (65.9730, 0.448374, 0.448095),
    "wait only": (58.0085, 0.400313, 0.400313),
    "farm loop": (58.0085, 0.400313, 0.396624),
    "good, never fossilized": (58.0085, 0.400313, 0.393133),
    "useless, held": (58.0085, 0.400313, 0.393133),
    "harmful, held": (58.0085, 0.400313, 0.393133),
    "useless, fossilized": (58.0085, 0.393412, 0.393133),
    "harmful, fossilized": (54.0263, 0.365931, 0.365652),
    "good, rolled back": (None, -0.782224, -0.786855),
}
PAID_ONCE = (
    "three good > good = good, other slot > wait only = farm loop = good, never fossilized "
    "= useless, held"
    " = harmful, held > useless, fossilized > harmful, fossilized > good, rolled back"
)
ORDER = {  # "=": equal to 1e-6, ">": at least a thousandth less
    "sparse": PAID_ONCE,
    "delta": PAID_ONCE,
    "value": PAID_ONCE,
    "loss": PAID_ONCE,
    "rent": "three good > good = good, other slot > wait only > farm loop > good, never fossilized "
    "= useless, held"
    " = harmful, held = useless, fossilized > harmful, fossilized > good, rolled back",
}


def earned(name: str) -> dict[str, float]:
    rule = build_rule(RewardSpec(rule=name), **asdict(TERMS))
    return dict(zip(ARCHETYPES, archetype_returns(rule, POLICIES).tolist(), strict=True))


@pytest.mark.parametrize("rule", list(ORDER))
def test_each_archetype_earns_its_known_return(rule):
    got = earned(rule)
    assert got.keys() == WANTED.keys()
    for name, (_, once, rented) in WANTED.items():
        assert got[name] == pytest.approx(rented if rule == "rent" else once, abs=1e-6), name


@pytest.mark.parametrize("rule", list(ORDER))
def test_difference_08_growing_what_helps_beats_every_other_archetype_in_this_order(rule):
    ranks = [group.split(" = ") for group in ORDER[rule].split(" > ")]
    assert sorted(name for group in ranks for name in group) == sorted(ARCHETYPES)
    got = earned(rule)
    paid = [[got[name] for name in group] for group in ranks]
    for group in paid:
        assert max(group) - min(group) < 1e-6
    for better, worse in itertools.pairwise(paid):
        assert min(better) - max(worse) >= 1e-3


def test_keeping_a_seed_that_is_not_needed_costs_and_what_helps_pays_before_it_is_delivered():
    paid = earned("anytime")
    assert paid["good, never fossilized"] == pytest.approx(paid["good"])
    ranks = ("three good", "good", "wait only", "farm loop", "useless, held", "harmful, held")
    ranks += ("good, rolled back",)
    assert all(paid[better] > paid[worse] + 5e-4 for better, worse in itertools.pairwise(ranks))


def test_a_return_is_the_discounted_sum_of_the_rewards_up_to_a_rollback():
    rule = build_rule(RewardSpec(rule="rent"), **asdict(TERMS))
    inputs = archetype_inputs(POLICIES)
    rewards, _, _ = play_rule(rule, [inputs[t] for t in range(STEPS)])
    got = archetype_returns(rule, POLICIES)
    torch.testing.assert_close(got[:-1], slow_rules.discounted_return(rewards, TERMS.gamma)[:-1])
    torch.testing.assert_close(got[-1], slow_rules.discounted_return(rewards[:50], TERMS.gamma)[-1])
    assert inputs.rolled_back[:, -1].nonzero().flatten().tolist() == [49]
    assert not inputs.rolled_back[:, :-1].any()


def test_the_synthetic_worlds_end_where_they_should():
    final = archetype_inputs(POLICIES).committed_acc[-1]
    for i, (name, (committed, _, _)) in enumerate(WANTED.items()):
        if committed is not None:
            assert final[i].item() == pytest.approx(committed, abs=5e-5), name


@pytest.mark.slow
def test_the_command_lists_every_rule_and_its_returns(capsys, monkeypatch):
    assert main.main(["rewards", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rules = {row["rule"]: row for row in found["rules"]}
    assert rules["delta"].keys() == {"rule", "origin", "description"}
    returns = found["tables"]["discounted returns, own"]
    assert {"policy", "committed", "sparse", "delta"} <= returns[0].keys()
    assert len(found["tables"]) == len({row["origin"] for row in found["rules"]})
    returned = {row["policy"]: row["delta"] for row in returns}
    assert returned["good"] == pytest.approx(WANTED["good"][1], abs=1e-3)
    monkeypatch.setattr(
        scripted_policies, "archetype_returns", lambda rule, policies: torch.zeros(len(policies))
    )
    assert main.main(["rewards"]) == 0
    assert "good, never fossilized" in capsys.readouterr().out
