"""Laws that hold for every step: it never asks the host, does not write to its input, and keeps device and dtype.

On the `meta` device every read of a value raises, so a step that runs there never waits.
"""

import copy

import pytest
import torch
from runs import live, tiny, world_of

from morphogen.learn.schedule import coefficients
from morphogen.learn.update import deal, init_learner, update
from morphogen.nets import plan as plans
from morphogen.rules.attribution import coalitions, measuring
from morphogen.rules.decode import decode
from morphogen.rules.legality import action_masks
from morphogen.run.policies import arm_of
from morphogen.run.record import record
from morphogen.run.rollout import Rollout
from morphogen.run.setup import build_setup
from morphogen.state import rng
from morphogen.steps.apply import apply_action
from morphogen.steps.attribute import attribute
from morphogen.steps.govern import first_snapshot, govern
from morphogen.steps.observe import observe
from morphogen.steps.reset import reset
from morphogen.steps.score import score
from morphogen.steps.sow import born_rows, sow
from morphogen.steps.tick import tick
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate import validate
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Stage


class Scene:
    """An epoch in the middle of a random episode, and everything its steps were given."""

    def __init__(self):
        self.setup = build_setup(tiny(envs=8, episode_length=14))
        self.world = world_of(self.setup)
        self.epochs = live(self.world)
        self.epoch = next(
            e for e in self.epochs[6:] if ((e.before.slots.stage == 1) & (e.acted.slots.stage == 2)).any()
        )
        noise = torch.rand(8, 2, 3)
        self.coalition, self.evaluated = coalitions(self.epoch.ticked.slots, noise, pairs=2)
        self.noise = noise
        born = (self.epoch.before.slots.stage == int(Stage.DORMANT)) & (
            self.epoch.acted.slots.stage == int(Stage.GERMINATED)
        )
        counts = plans.plan_counts(self.epoch.ticked.slots, self.coalition, self.evaluated, born, net=self.setup.net)
        self.plan = plans.read_plan(counts.tolist(), self.setup.net)
        self.born = born
        self.draws = self.setup.feed.epoch(self.epoch.ticked)
        self.batch = self.setup.feed.batch(self.draws, 0)
        self.split = self.setup.dataset.validation()
        self.policy = arm_of("ppo", self.setup).policy
        self.learner = init_learner(self.policy, self.world.key[0])
        self.rollout = Rollout(14)
        for t, one in enumerate(self.epochs):
            self.rollout.write(t, one, one.before.clock.epoch == 0)


@pytest.fixture(scope="module")
def scene():
    return Scene()


def train(s, on):
    state = on(s.epoch.ticked)
    progress = start_epoch(state, s.plan, net=s.setup.net)
    spec = s.setup.spec
    progress, _ = train_minibatch(
        progress, on(s.batch), s.plan, net=s.setup.net, spec=spec.host, lifecycle=spec.lifecycle
    )
    return finish_epoch(state, progress, net=s.setup.net)


def sown(s, on):
    rows = born_rows(on(s.born), s.plan)
    noise = tuple(
        row[:, None] * torch.zeros(1, size, device=row.device)
        for row, size in zip(rows, s.setup.net.seed_sizes, strict=True)
    )
    return sow(on(s.epoch.ticked), rows, noise, net=s.setup.net)


def scored(s, on):
    setup, e = s.setup, s.epoch
    given = (on(x) for x in (e.governed, e.outcome, e.attribution, e.report, e.validation))
    return score(
        *given,
        before=on(e.before),
        host_params=on(e.host_params),
        rule=setup.rule,
        net_counts=setup.net.counts,
        gate_counts=setup.net.gate_counts,
        param_budget=setup.budget,
        target_loss=0.05,
        episode_length=14,
    )


def updated(s, on):
    spec = s.setup.spec
    assignment = deal(on(torch.rand(spec.ppo.epochs, 8 // spec.ppo.minibatches, spec.ppo.minibatches)))
    rows = on(s.rollout.whole())
    return update(on(s.learner), rows, assignment, coefficients(spec.ppo, 0), policy=s.policy, spec=spec.ppo)


def acted(s, on):
    e, hidden = s.epoch, s.policy.initial_hidden(8)
    noise = on(torch.rand(8, 41))
    return s.policy.act(on(s.learner.params), on(e.observation), on(e.masks), on(hidden), noise)


STEPS = {
    "reset": lambda s, on: reset(
        on(s.world.key),
        on(s.epoch.before.instance),
        on(torch.rand(8, s.setup.net.host_size)),
        episode=1,
        ledger=on(s.epoch.before.ledger),
        net=s.setup.net,
        window=20,
    ),
    "observe": lambda s, on: observe(on(s.epoch.before), s.setup.limits, net=s.setup.net, episode_length=14),
    "action_masks": lambda s, on: action_masks(on(s.epoch.before.slots), s.setup.limits),
    "act": acted,
    "decode": lambda s, on: decode(on(s.epoch.choice.action), on(s.epoch.before.slots), s.setup.limits),
    "apply_action": lambda s, on: apply_action(
        on(s.epoch.before),
        decode(on(s.epoch.choice.action), on(s.epoch.before.slots), s.setup.limits),
        lifecycle=s.setup.spec.lifecycle,
    ),
    "tick": lambda s, on: tick(on(s.epoch.acted), lifecycle=s.setup.spec.lifecycle),
    "coalitions": lambda s, on: coalitions(
        on(s.epoch.ticked.slots),
        on(s.noise),
        pairs=2,
        full=measuring(on(s.epoch.ticked.clock.epoch), every=2, episode_length=14),
    ),
    "plan_counts": lambda s, on: plans.plan_counts(
        on(s.epoch.ticked.slots), on(s.coalition), on(s.evaluated), on(s.born), net=s.setup.net
    ),
    "sow": sown,
    "feed": lambda s, on: rng.gumbel(rng.stream(on(s.world.key), Purpose.ACTION, epoch=3), 41),
    "train": train,
    "validate": lambda s, on: validate(
        on(s.epoch.ticked), on(s.split), on(s.coalition), on(s.evaluated), s.plan, net=s.setup.net
    ),
    "attribute": lambda s, on: attribute(
        on(s.epoch.ticked), on(s.epoch.validation), every=2, episode_length=14, signal_spec=s.setup.spec.signal
    ),
    "govern": lambda s, on: govern(
        on(s.epoch.ticked), on(s.epoch.validation), on(s.epoch.train), spec=s.setup.spec.governor, minibatches=2
    ),
    "first_snapshot": lambda s, on: first_snapshot(on(s.epoch.before)),
    "score": scored,
    "update": updated,
}
every_step = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)


def leaves(out):
    if torch.is_tensor(out):
        return [out]
    if hasattr(out, "values") and hasattr(out, "batch_size"):
        return list(out.values(True, True))
    return [leaf for part in out for leaf in leaves(part)] if isinstance(out, tuple | list) else []


@every_step
def test_a_step_never_asks_the_host_and_stays_on_its_device(step, scene):
    out = leaves(step(scene, lambda x: x.to("meta")))
    assert out
    assert {leaf.device.type for leaf in out} == {"meta"}


@every_step
def test_a_step_does_not_write_to_its_input(step, scene):
    given = []

    def watched(x):
        given.append((x, x.clone()))
        return x

    step(scene, watched)
    assert given
    for now, before in given:
        for after, was in zip(leaves(now), leaves(before), strict=True):
            assert torch.equal(after, was), "a step wrote to its input"


@every_step
def test_a_step_keeps_the_dtypes_of_the_state(step, scene):
    whole = leaves(step(scene, lambda x: x))
    meta = leaves(step(scene, lambda x: x.to("meta")))
    assert [leaf.dtype for leaf in whole] == [leaf.dtype for leaf in meta]
    assert [leaf.shape for leaf in whole] == [leaf.shape for leaf in meta]


def test_the_state_keeps_its_leaves_and_dtypes_through_an_epoch(scene):
    before, after = scene.epoch.before, scene.epoch.after
    kinds = [{key: (leaf.dtype, leaf.shape) for key, leaf in state.items(True, True)} for state in (before, after)]
    assert kinds[0] == kinds[1]


def test_the_record_is_made_without_a_read(scene):
    on_meta = copy.copy(scene.epoch)
    for name in scene.epoch.__dataclass_fields__:
        object.__setattr__(on_meta, name, getattr(scene.epoch, name).to("meta"))
    found = record(on_meta)
    assert {leaf.device.type for leaf in found.values()} == {"meta"}
    assert sum(leaf.numel() * leaf.element_size() for leaf in found.values()) < 8 * 2_000, "the record is small"
