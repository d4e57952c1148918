"""Scripted growth policies on synthetic learning curves: which of them a rule prefers."""

import itertools
import json
from dataclasses import asdict

import pytest
import torch
from support import slow_rules

from morphogen.cli import main
from morphogen.config.groups import RewardSpec
from morphogen.extras.archetypes.scripted_policies import (
    ARCHETYPES,
    SLOTS,
    STEPS,
    TERMS,
    archetype_inputs,
    archetype_returns,
)
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.vocab.action import Op
from morphogen.vocab.stage import OCCUPIED, TRANSITIONS, Stage

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
def test_the_command_lists_every_rule_and_its_returns(capsys):
    assert main.main(["rewards", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rules = {row["rule"]: row for row in found["rules"]}
    assert rules["delta"].keys() == {"rule", "origin", "description"}
    returns = found["tables"]["discounted returns, own"]
    assert {"policy", "committed", "sparse", "delta"} <= returns[0].keys()
    assert len(found["tables"]) == len({row["origin"] for row in found["rules"]})
    assert main.main(["rewards"]) == 0
    assert "good, never fossilized" in capsys.readouterr().out


# what a rule sees of a scripted life, from step to step


def by_name(name: str):
    return archetype_inputs([ARCHETYPES[name]])[:, 0]


@pytest.mark.parametrize("name", list(ARCHETYPES))
def test_what_is_true_after_a_step_is_true_before_the_next(name):
    seen = by_name(name)
    slots, later = seen.slots[:-1], seen.slots[1:]
    for leaf in ("stage", "contribution", "contribution_valid"):
        assert torch.equal(getattr(slots, f"next_{leaf}"), getattr(later, leaf))
    assert torch.equal(seen.next_val_acc[:-1], seen.val_acc[1:])
    uncommitted = (seen.next_val_acc - seen.committed_acc)[:-1]
    torch.testing.assert_close(uncommitted, seen.uncommitted_improvement[1:], rtol=0, atol=1e-12)
    worth = slots.next_contribution.sum(-1)
    torch.testing.assert_close(worth, seen.clean_improvement[:-1], rtol=0, atol=1e-12)
    windows = torch.stack([seen.val_acc[max(0, t - 2) : t + 1].min() for t in range(STEPS)])
    assert torch.equal(windows, seen.stable_val_acc)
    assert seen.epoch.tolist() == list(range(1, STEPS + 1))
    assert seen.horizon.tolist() == [step == STEPS for step in range(1, STEPS + 1)]
    living = torch.isin(later.stage, torch.tensor([int(s) for s in OCCUPIED]))
    assert torch.equal(living.sum(-1) * 2000, seen.live_params[:-1])
    assert torch.equal(later.params, 2000 * living)


@pytest.mark.parametrize("name", list(ARCHETYPES))
def test_every_change_of_stage_is_a_legal_move_made_by_the_one_op_of_its_step(name):
    seen = by_name(name)
    op_of = {
        Stage.GERMINATED: Op.GERMINATE,
        Stage.FOSSILIZED: Op.FOSSILIZE,
        Stage.DORMANT: Op.PRUNE,
    }
    for step in range(STEPS):
        moved = 0
        for slot in range(SLOTS):
            stage, then = (
                Stage(int(leaf[step, slot])) for leaf in (seen.slots.stage, seen.slots.next_stage)
            )
            # a pruned slot cools in no time here
            legal = Stage.PRUNED if then is Stage.DORMANT else then
            assert then is stage or legal in TRANSITIONS[stage]
            expected = Op.WAIT if then is stage else op_of.get(then, Op.ADVANCE)
            assert seen.slots.op[step, slot] == expected
            moved += then is not stage
            assert then is stage or seen.op[step] == expected
        assert moved <= 1
        assert moved or seen.op[step] == Op.WAIT
