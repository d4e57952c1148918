"""Rewards of every rule over real steps, without a read by the host."""

import pytest
import torch
from support.small_runs import live, score_inputs, tiny, world_of

from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.env.setup import build_setup
from morphogen.rules.decoding import decode
from morphogen.rules.rewards.table import build_rule
from morphogen.steps.apply import apply_action
from morphogen.steps.score_step import score
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.vocab.action import RELEVANT, Head, Op

EPOCHS, ENVS = 10, 8
every_rule = pytest.mark.parametrize("name", sorted(RULES))


class Scene:
    """An episode of random actions, and what it takes to pay its steps again."""

    def __init__(self):
        self.setup = build_setup(tiny(envs=ENVS, episode_length=EPOCHS))
        self.epochs = live(world_of(self.setup))

    def rule(self, name):
        spec = RewardSpec(rule=name, op_cost=0.01)
        return build_rule(spec, param_budget=self.setup.budget, episode_length=EPOCHS, gamma=0.9)

    def outcome(self, epoch, action):
        heads = decode(action, epoch.before.slots, self.setup.limits)
        return apply_action(epoch.before, heads, lifecycle=self.setup.spec.lifecycle)[1]

    def paid(self, epoch, rule, outcome=None):
        """The step of an epoch, paid by a rule."""
        given = score_inputs(epoch, target_loss=0.05, episode_length=EPOCHS)
        given = given if outcome is None else given._replace(outcome=outcome)
        governed = epoch.step.governed.replace(ledger=rule.init(ENVS, 3))
        return score(governed, given, rule=rule, param_budget=self.setup.budget)


@pytest.fixture(scope="module")
def scene():
    return Scene()


@every_rule
def test_difference_07_heads_that_the_op_does_not_use_change_no_reward(scene, name):
    draw, rule, changed = torch.Generator().manual_seed(3), scene.rule(name), 0
    for epoch in scene.epochs:
        action = epoch.choice.action
        noise = torch.randint(0, 20, action.shape, generator=draw)
        other = torch.where(torch.tensor(RELEVANT)[action[:, Head.OP]], action, noise)
        changed += int((other != action).sum())
        for one, same in zip(
            scene.paid(epoch, rule, outcome=scene.outcome(epoch, other)),
            scene.paid(epoch, rule),
            strict=True,
        ):
            assert not differing_leaves(one, same)
    assert changed > 100


@every_rule
def test_difference_09_an_action_that_cannot_be_executed_is_paid_like_wait(scene, name):
    rule, acted = scene.rule(name), 0
    for epoch in scene.epochs:
        wrong = epoch.choice.action.clone()
        wrong[:, Head.SLOT] = 99
        waiting = torch.zeros_like(wrong)
        waiting[:, Head.OP] = int(Op.WAIT)
        _, one = scene.paid(epoch, rule, outcome=scene.outcome(epoch, wrong))
        _, other = scene.paid(epoch, rule, outcome=scene.outcome(epoch, waiting))
        assert not differing_leaves(one, other)
        acted += int((epoch.step.outcome.effective_op != Op.WAIT).sum())
    assert acted > 20


@every_rule
def test_what_the_detectors_say_changes_no_reward(scene, name):
    rule, fired = scene.rule(name), torch.zeros(2, dtype=torch.int64)
    for epoch in scene.epochs:
        slots = epoch.step.governed.slots
        worth = slots.replace(contribution=5.0 * slots.contribution_valid)
        quiet, *loud = (
            epoch._replace(
                step=epoch.step._replace(
                    governed=epoch.step.governed.replace(slots=worth),
                    measured=epoch.step.measured.replace(
                        uncommitted_improvement=torch.full((ENVS,), uncommitted)
                    ),
                )
            )
            for uncommitted in (10.0, 0.5, -0.5)
        )
        paid = scene.paid(quiet, rule)[1]
        assert not paid.detectors.any()
        for one in loud:
            got = scene.paid(one, rule)[1]
            assert torch.equal(got.components, paid.components)
            fired += got.detectors.sum((0, 1))
    assert (fired > 0).all()
