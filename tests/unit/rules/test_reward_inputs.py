"""Inputs of a reward rule: slots before the step, accuracies on both sides of it."""

import pytest
import torch
from support.small_runs import live, score_inputs, tiny, world_of

from morphogen.env.setup import build_setup
from morphogen.rules.counts import seed_params
from morphogen.steps.score_step import reward_inputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Algorithm, Stage

ENVS, SLOTS, EPOCHS = 8, 3, 14
SEEDS = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
places = [(env, slot) for env in range(ENVS) for slot in range(SLOTS)]


def other_numbers(slots, dice):
    """The slots with measurements of their own, so that no two leaves are alike."""
    known = (
        "contribution",
        "alpha",
        "accuracy_at_germination",
        "accuracy_at_stage_start",
        "interaction_sum",
    )
    return slots.replace(
        **{leaf: torch.rand(ENVS, SLOTS, generator=dice) for leaf in known},
        contribution_valid=torch.rand(ENVS, SLOTS, generator=dice) < 0.5,
    )


def with_numbers(epoch, dice):
    """The epoch with made-up measurements of slots before and after it, and made-up
    interactions.
    """
    before = epoch.before.replace(slots=other_numbers(epoch.before.slots, dice))
    governed, attribution = epoch.step.governed, epoch.step.measured
    step = epoch.step._replace(
        governed=governed.replace(slots=other_numbers(governed.slots, dice)),
        measured=attribution.replace(interaction=torch.rand(ENVS, SLOTS, SLOTS, generator=dice)),
    )
    return epoch._replace(carry=epoch.carry._replace(state=before), step=step)


class Scene:
    """A random episode, and what its epochs show."""

    def __init__(self):
        self.setup = build_setup(tiny(envs=ENVS, episode_length=EPOCHS))
        dice = torch.Generator().manual_seed(0)
        self.epochs = [with_numbers(epoch, dice) for epoch in live(world_of(self.setup))]
        self.shown = [self.inputs(epoch) for epoch in self.epochs]

    def inputs(self, epoch, **changed):
        governed = changed.pop("governed", epoch.step.governed)
        given = score_inputs(epoch, target_loss=0.3, episode_length=EPOCHS)
        sizes = {"params": self.params(epoch.before), "next_params": self.params(governed)}
        return reward_inputs(governed, given._replace(**sizes, **changed))

    def params(self, state):
        return seed_params(state.slots, self.setup.net.counts, self.setup.net.gate_counts)

    def unmeasured(self, epoch):
        """The state before an epoch of which nothing was measured."""
        signals = epoch.before.signals
        return epoch.before.replace(
            signals=signals.replace(measured=torch.zeros_like(signals.measured))
        )


@pytest.fixture(scope="module")
def scene():
    return Scene()


def test_slots_are_shown_as_they_were_before_the_step(scene):
    same = (
        "stage",
        "previous_stage",
        "epochs_in_stage",
        "previous_epochs_in_stage",
        "age",
        "contribution",
        "alpha",
    )
    more = (
        "accuracy_at_germination",
        "accuracy_at_stage_start",
        "interaction_sum",
        "contribution_valid",
    )
    for epoch, shown in zip(scene.epochs, scene.shown, strict=True):
        for leaf in same + more:
            assert torch.equal(getattr(shown.slots, leaf), getattr(epoch.before.slots, leaf)), leaf
        for leaf in ("stage", "contribution", "contribution_valid"):
            assert torch.equal(
                getattr(shown.slots, f"next_{leaf}"), getattr(epoch.step.governed.slots, leaf)
            ), leaf
    assert any((shown.slots.stage != shown.slots.next_stage).any() for shown in scene.shown)


def test_difference_07_an_op_stands_on_the_slot_on_which_it_took_effect_and_nowhere_else(scene):
    seen = set()
    for epoch, shown in zip(scene.epochs, scene.shown, strict=True):
        for env, slot in places:
            hit = epoch.step.outcome.executed[env] and epoch.step.outcome.target[env, slot]
            want = epoch.step.outcome.effective_op[env] if hit else Op.WAIT
            assert shown.slots.op[env, slot] == want
            seen.add(Op(int(want)))
    assert {Op.WAIT, Op.GERMINATE, Op.ADVANCE} <= seen


def test_difference_09_an_op_that_was_declined_stands_on_no_slot(scene):
    epoch = next(
        e for e in scene.epochs if (e.step.outcome.target.any(-1) & e.step.outcome.executed).any()
    )
    declined = epoch.step.outcome.replace(executed=torch.zeros_like(epoch.step.outcome.executed))
    assert (scene.inputs(epoch, outcome=declined).slots.op == Op.WAIT).all()


def test_difference_17_parameters_of_slots_come_from_the_table_with_their_gates(scene):
    gated = 0
    for epoch, shown in zip(scene.epochs, scene.shown, strict=True):
        slots = epoch.before.slots
        for env, slot in places:
            gate = slots.algorithm[env, slot] == Algorithm.GATE
            count = (
                scene.setup.net.counts[slot][slots.blueprint[env, slot]]
                + gate * scene.setup.net.gate_counts[slot]
            )
            assert shown.slots.params[env, slot] == (
                count if slots.stage[env, slot] in SEEDS else 0
            )
            gated += int(gate)
        assert torch.equal(shown.host_params, epoch.step.host_params)
    assert gated


def test_accuracies_lie_on_both_sides_of_the_step_and_steps_count_from_one(scene):
    for t, (epoch, shown) in enumerate(zip(scene.epochs, scene.shown, strict=True)):
        before = epoch.before.signals
        assert (shown.epoch == t + 1).all()
        assert torch.equal(shown.horizon, shown.epoch == EPOCHS)
        assert torch.equal(shown.val_acc, before.val_acc)
        assert torch.equal(shown.next_val_acc, epoch.step.measured.val_acc)
        assert torch.equal(shown.uncommitted_improvement, before.val_acc - before.committed_acc)
        history = [before.val_acc] + [
            e.before.signals.val_acc for e in scene.epochs[max(0, t - 2) : t]
        ]
        assert torch.equal(shown.stable_val_acc, torch.stack(history).amin(0))
        assert shown.uncommitted_valid.all()
    assert any((shown.stable_val_acc < shown.val_acc).any() for shown in scene.shown)


def test_interactions_are_those_of_this_epoch(scene):
    for epoch, shown in zip(scene.epochs, scene.shown, strict=True):
        assert torch.equal(shown.interaction, epoch.step.measured.interaction)


def test_nothing_that_was_measured_counts_where_the_accuracy_before_was_not(scene):
    epoch = scene.epochs[4]
    assert scene.shown[4].slots.contribution_valid.any()
    shown = scene.inputs(epoch, before=scene.unmeasured(epoch))
    assert not shown.uncommitted_valid.any()
    assert not shown.slots.contribution_valid.any()
    assert (shown.uncommitted_improvement == 0).all()


def test_a_rolled_back_env_shows_the_accuracy_of_its_snapshot_and_no_interactions(scene):
    epoch = scene.epochs[4]
    back = torch.arange(ENVS) % 2 == 0
    signals = epoch.step.governed.signals.replace(val_acc=torch.full((ENVS,), 12.5))
    report = epoch.step.report.replace(rolled_back=back)
    shown = scene.inputs(
        epoch, report=report, governed=epoch.step.governed.replace(signals=signals)
    )
    assert torch.equal(shown.next_val_acc, torch.where(back, 12.5, epoch.step.measured.val_acc))
    assert (shown.interaction[back] == 0).all()
    assert torch.equal(shown.interaction[~back], epoch.step.measured.interaction[~back])


def test_a_skipped_epoch_shows_no_interactions_and_an_accuracy_that_is_not_finite_is_zero(scene):
    epoch = scene.epochs[4]
    skipped = epoch.step.measured.replace(measured=torch.zeros_like(epoch.step.measured.measured))
    assert (scene.inputs(epoch, attribution=skipped).interaction == 0).all()
    spoiled = epoch.step.measured.replace(val_acc=torch.full((ENVS,), torch.nan))
    assert (scene.inputs(epoch, attribution=spoiled).next_val_acc == 0).all()
