"""Reward of a step, its record, and the end of the epoch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_up_measurements import (
    make_attribution,
    make_validation,
    slots_by_stage,
)
from support.profiles import one_in

from morphogen.config.groups import RewardSpec
from morphogen.rules.attribution import detect_false_credit
from morphogen.rules.counts import seed_params
from morphogen.rules.rewards.table import build_rule
from morphogen.state.decision import ActionOutcome
from morphogen.state.measure import GovernorReport
from morphogen.steps.score_step import ScoreInputs, score
from morphogen.testing.builders import scenes
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.vocab.action import Op, Outcome
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Panic, Stage

T, BUDGET, GAMMA = 10, 1000, 0.9
COUNTS = tuple(tuple(10 * (slot + 1) * code for code in range(13)) for slot in range(3))
GATES = (1, 2, 3)


def outcome_of(
    envs: int, op: Op = Op.WAIT, *, executed: bool = True, slots: int = 3
) -> ActionOutcome:
    whole = torch.zeros(envs, dtype=torch.int64)
    return ActionOutcome(
        outcome=whole + int(Outcome.EXECUTED if executed else Outcome.DECLINED),
        executed=torch.full((envs,), executed),
        effective_op=whole + int(op),
        reason=whole,
        gate=whole,
        gate_failed=whole,
        target=torch.zeros(envs, slots, dtype=torch.bool),
        batch_size=[envs],
    )


def report_of(rolled_back: list[bool]) -> GovernorReport:
    flags = torch.tensor(rolled_back)
    whole, real = flags.long(), flags.float()
    return GovernorReport(
        rolled_back=flags,
        panic=whole * int(Panic.DIVERGENCE),
        limit=real,
        streak=whole,
        anomaly=whole,
        loss=real,
        snapshot_taken=~flags,
        snapshot_epoch=whole,
        seeds_pruned=whole,
        batch_size=[len(rolled_back)],
    )


def seed_sizes(before, after, *counts):
    """Parameters of the seeds on both sides of a step."""
    return [seed_params(state.slots, *(counts or (COUNTS, GATES))) for state in (before, after)]


def given_of(before, after, *measured, counts=()):
    """The inputs of the score; measured: outcome, attribution, report and validation."""
    sizes = seed_sizes(before, after, *counts)
    host = torch.full((len(before),), 100, device=before.device)
    return ScoreInputs(before, *measured, host, *sizes, target_loss=0.3, episode_length=T)


def rule_of(**spec):
    return build_rule(RewardSpec(**spec), param_budget=BUDGET, episode_length=T, gamma=GAMMA)


def pay(
    state, *, attribution=None, rolled_back=None, op=Op.WAIT, executed=True, rule="delta", **spec
):
    """Score a state in one call; by default nothing was measured to help and nothing went wrong."""
    envs = state.batch_size[0]
    given = given_of(
        state,
        state,
        outcome_of(envs, op, executed=executed),
        make_attribution([50.0] * envs) if attribution is None else attribution,
        report_of([False] * envs if rolled_back is None else rolled_back),
        make_validation([1.0] * envs, [50.0] * envs, columns=8),
    )
    return score(state, given, rule=rule_of(rule=rule, **spec), param_budget=BUDGET)


stages = st.lists(
    st.lists(st.sampled_from(list(Stage)[1:]), min_size=3, max_size=3), min_size=1, max_size=3
)
OCCUPIED = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)


# parameters and network value


def test_parameters_are_counted_by_stage_with_the_gate_of_a_gated_seed():
    slots = slots_by_stage(
        [
            [Stage.FOSSILIZED, Stage.TRAINING, Stage.PRUNED],
            [Stage.FOSSILIZED, Stage.DORMANT, Stage.HOLDING],
        ],
        blueprint=[
            [Blueprint.CONV_LIGHT, Blueprint.NORM, Blueprint.NORM],
            [Blueprint.NORM, -1, Blueprint.CONV_LIGHT],
        ],
        algorithm=[
            [Algorithm.ADD, Algorithm.GATE, Algorithm.GATE],
            [Algorithm.GATE, 0, Algorithm.MULTIPLY],
        ],
    )
    _, got = pay(scenes.make_state(slots, measured=False))
    assert got.fossil_params.tolist() == [10, 30 + 1]
    assert got.live_params.tolist() == [10 + 60 + 2, 31 + 30]
    assert got.param_cost.tolist() == pytest.approx([0.1 * 10 / BUDGET, 0.1 * 31 / BUDGET])
    assert got.network_value.tolist() == pytest.approx(
        [0.5 - 0.1 * 10 / BUDGET, 0.5 - 0.1 * 31 / BUDGET]
    )


# the reward of the step


@pytest.mark.parametrize("rule", ["sparse", "delta"])
def test_the_value_is_paid_in_the_last_epoch_only(rule):
    for epoch in range(T):
        after, got = pay(
            scenes.make_state(slots_by_stage([[Stage.DORMANT] * 3]), epoch=epoch, measured=False),
            rule=rule,
        )
        assert got.terminated.item() == (epoch == T - 1)
        assert got.reward.item() == pytest.approx(0.5 if epoch == T - 1 else 0.0)
        assert got.network_value.item() == pytest.approx(0.5)
        assert after.clock.epoch.item() == epoch + 1


def test_difference_09_the_step_is_paid_for_what_was_measured_after_its_action():
    state = scenes.make_state(
        slots_by_stage([[Stage.HOLDING, Stage.DORMANT, Stage.DORMANT]]), phi=0.02, measured=False
    )
    after, got = pay(
        state, attribution=make_attribution([58.0], clean=[8.0], contribution=[[8.0, 0.0, 0.0]])
    )
    assert got.reward.item() == pytest.approx(GAMMA * 0.08 - 0.02)
    assert after.ledger["phi"].item() == pytest.approx(0.08)
    assert got.potential.item() == pytest.approx(0.08)
    torch.testing.assert_close(got.potential_by_slot, torch.tensor([[0.08, 0.0, 0.0]]))
    assert not got.unmeasured


def test_difference_09_a_declined_action_is_paid_like_wait():
    state = scenes.make_state(slots_by_stage([[Stage.HOLDING] * 3]), measured=False)
    _, waited = pay(state, op_cost=0.01)
    _, declined = pay(state, op=Op.FOSSILIZE, executed=False, op_cost=0.01)
    _, done = pay(state, op=Op.FOSSILIZE, op_cost=0.01)
    assert not differing_leaves(declined, waited)
    assert (waited.reward - done.reward).item() == pytest.approx(0.01)


def test_an_unmeasured_epoch_carries_the_potential():
    state = scenes.make_state(slots_by_stage([[Stage.HOLDING] * 3]), phi=0.05, measured=False)
    after, got = pay(state, attribution=make_attribution([55.0], measured=False))
    assert got.unmeasured
    assert got.potential.item() == pytest.approx(0.05)
    assert got.reward.item() == pytest.approx((GAMMA - 1) * 0.05)
    assert after.ledger["phi"].item() == pytest.approx(0.05)
    assert (got.potential_by_slot == 0).all()


def test_the_split_of_the_potential_sums_to_it():
    credit = [[3.0, -1.0, 2.0]]
    _, got = pay(
        scenes.make_state(slots_by_stage([[Stage.HOLDING] * 3]), measured=False),
        attribution=make_attribution([54.0], clean=[4.0], contribution=credit),
    )
    torch.testing.assert_close(got.potential_by_slot.sum(1), got.potential)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_difference_19_a_loss_that_is_not_finite_gives_a_finite_reward_that_carries_the_potential(
    loss,
):
    state, envs = (
        scenes.make_state(slots_by_stage([[Stage.DORMANT] * 3] * 2), phi=0.4, measured=False),
        2,
    )
    given = given_of(
        state,
        state,
        outcome_of(envs),
        make_attribution([50.0] * envs),
        report_of([False] * envs),
        make_validation([loss, 1.3], [50.0] * envs, columns=8),
    )
    after, got = score(state, given, rule=rule_of(rule="loss"), param_budget=BUDGET)
    assert got.reward.tolist() == pytest.approx([(GAMMA - 1) * 0.4, GAMMA * 0.5 - 0.4])
    assert got.unmeasured.tolist() == [True, False]
    assert after.ledger["phi"].tolist() == pytest.approx([0.4, 0.5])
    assert (got.potential_by_slot == 0).all()


def test_difference_06_a_rollback_terminates_with_the_penalty_on_its_own_step_and_a_fresh_ledger():
    state = scenes.make_state(
        slots_by_stage([[Stage.PRUNED] * 3] * 2), phi=0.05, epoch=3, measured=False
    )
    remembered = state.signals.replace(committed_acc=torch.tensor([40.0, 40.0]))
    spoiled = make_attribution([math.nan, 50.0], clean=[math.nan, 0.0])
    after, got = pay(
        state.replace(signals=remembered), attribution=spoiled, rolled_back=[True, False]
    )
    assert got.terminated.tolist() == [True, False]
    assert got.reward.tolist() == pytest.approx([-1.0 - 0.05, -0.05])
    assert after.ledger["phi"].tolist() == [0.0, 0.0]
    # what would be delivered is the snapshot
    assert got.network_value.tolist() == pytest.approx([0.4, 0.5])
    assert got.unmeasured.tolist() == [True, False]
    assert all(leaf.isfinite().all() for leaf in got.to_dict().values())


# close


@settings(max_examples=one_in(2))  # each example makes whole states
@given(rows=stages)
def test_closing_counts_epochs_where_a_slot_is_not_empty_and_ages_seeds(rows):
    state = scenes.make_state(slots_by_stage(rows), epoch=2, measured=False)
    copy = state.clone()
    after, _ = pay(state)
    assert not differing_leaves(state, copy)
    for e, row in enumerate(rows):
        for s, stage in enumerate(row):
            assert after.slots.epochs_in_stage[e, s] == (0 if stage is Stage.DORMANT else 1)
            assert after.slots.age[e, s] == (1 if stage in OCCUPIED else 0)
    rest = {"ledger": state.ledger, "clock": state.clock}
    counters = {"epochs_in_stage": state.slots.epochs_in_stage, "age": state.slots.age}
    assert not differing_leaves(after.replace(slots=after.slots.replace(**counters), **rest), state)


# detectors


def detection(stage: Stage, contribution: float, uncommitted: float, *, valid: bool = True):
    slots = slots_by_stage([[stage]], contribution=[[contribution]], contribution_valid=[[valid]])
    return detect_false_credit(slots, torch.tensor([uncommitted]))


@pytest.mark.parametrize(
    ("contribution", "uncommitted", "inflated", "ransom", "critical"),
    [
        (5.0, 1.0, True, False, False),  # exactly five times
        (4.9, 1.0, False, False, False),
        (5.0, -1.0, False, True, True),
        (0.5, -0.3, False, True, False),
        (0.5, -0.1, False, False, False),
        (0.1, -1.0, False, False, False),  # the bound is strict
        (-3.0, -1.0, False, False, False),
    ],
)
def test_detectors_fire_on_inflated_credit_and_on_ransom(
    contribution, uncommitted, inflated, ransom, critical
):
    got = detection(Stage.HOLDING, contribution, uncommitted)
    assert got.fired.tolist() == [[[inflated, ransom]]]
    assert got.critical.item() == critical
    assert got.ratio.item() == pytest.approx(contribution / uncommitted if inflated else 0.0)


@pytest.mark.parametrize(("stage", "valid"), [(Stage.HOLDING, False), (Stage.FOSSILIZED, True)])
def test_no_detector_judges_an_unmeasured_seed_or_a_fossil(stage, valid):
    assert not detection(stage, 5.0, 1.0, valid=valid).fired.any()
    assert not detection(stage, 5.0, -1.0, valid=valid).fired.any()
