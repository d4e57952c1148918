"""What a rule is told of a step: the slots and accuracies as they were before it, the op only where it was executed."""

import pytest
import torch
from scenes import found, slots_of, state_of
from test_score import COUNTS, GATES, T, outcome_of, report_of, seen

from morphogen.steps.score import reward_inputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

HELD = [[Stage.HOLDING, Stage.DORMANT, Stage.FOSSILIZED]]


def told(before, after, outcome, accuracy: float = 50.0):
    return reward_inputs(
        after,
        outcome,
        found([accuracy]),
        report_of([False]),
        seen([1.0], [accuracy]),
        before=before,
        host_params=torch.tensor([100]),
        net_counts=COUNTS,
        gate_counts=GATES,
        target_loss=0.3,
        episode_length=T,
    )


def measured(state, accuracy: float, flag: bool = True):
    signals = state.signals.replace(val_acc=torch.tensor([accuracy]), measured=torch.tensor([flag]))
    return state.replace(signals=signals)


@pytest.mark.parametrize("executed", [True, False])
def test_difference_09_an_op_is_told_on_its_own_slot_and_only_if_it_was_executed(executed):
    state = state_of(slots_of(HELD))
    target = torch.tensor([[True, False, False]])
    outcome = outcome_of(1, Op.FOSSILIZE, executed=executed).replace(target=target)
    op = Op.FOSSILIZE if executed else Op.WAIT
    assert told(state, state, outcome).slots.op.tolist() == [[int(op), 0, 0]]


def test_stages_and_accuracies_before_and_after_the_step_are_told_apart():
    before = measured(state_of(slots_of(HELD)), 40.0)
    after = measured(state_of(slots_of([[Stage.FOSSILIZED, Stage.DORMANT, Stage.FOSSILIZED]])), 60.0)
    given = told(before, after, outcome_of(1), accuracy=60.0)
    assert (given.val_acc.item(), given.next_val_acc.item()) == (40.0, 60.0)
    assert given.slots.stage.tolist() == [[int(stage) for stage in HELD[0]]]
    assert given.slots.next_stage[0, 0] == int(Stage.FOSSILIZED)


@pytest.mark.parametrize("flag", [True, False])
def test_a_contribution_counts_only_with_the_accuracies_of_its_epoch(flag):
    slots = slots_of(HELD, contribution=[[2.0, 0.0, 1.0]], contribution_valid=[[True, False, True]])
    before = measured(state_of(slots), 40.0, flag)
    given = told(before, before, outcome_of(1))
    assert given.slots.contribution_valid.tolist() == [[flag, False, flag]]
    assert given.uncommitted_valid.tolist() == [flag]
