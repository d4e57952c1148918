"""The laws hold for every step, by two tables: steps on drawn states, and steps in an epoch of a
real run.

A new step is a new row, and without one a test fails.
"""

import importlib
import inspect
import pkgutil
from functools import partial

import pytest
import torch
from hypothesis import strategies as st
from support.drawn_tensors import measured
from support.made_up_measurements import make_train_metrics, make_validation
from support.profiles import one_in
from support.small_runs import live, score_inputs, tiny, world_of
from torch.utils._pytree import tree_map

from morphogen import steps
from morphogen.config.groups import GovernorSpec, LifecycleSpec, SignalSpec
from morphogen.config.host import CnnSpec
from morphogen.env.episodes import Rollout
from morphogen.env.policies import build_arm
from morphogen.env.setup import build_setup
from morphogen.hosts import plan as plans
from morphogen.hosts.net import Net
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.ppo.coefficients import coefficients_at
from morphogen.ppo.learner import Round
from morphogen.ppo.ppo_state import init_ppo
from morphogen.ppo.update import minibatch_indices, update_ppo
from morphogen.rules.attribution import coalitions
from morphogen.rules.decoding import decode
from morphogen.state import rng
from morphogen.state.measure import Validation
from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import first_snapshot, govern
from morphogen.steps.observe_step import observe, state_facts
from morphogen.steps.reset_step import (
    init_seed_params,
    init_seeds,
    new_seed_rows,
    place_fossils,
    reset,
)
from morphogen.steps.score_step import attribute, reward_inputs, score
from morphogen.steps.tick_step import tick
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.testing import strategies
from morphogen.testing.builders import scenes, tree_equality
from morphogen.testing.laws import check_step
from morphogen.train.reporter import build_record
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Stage

HOST = CnnSpec(base=4, blocks=3, kernel=3, pools=0, channels_in=1, size=8, classes=10)
NET = Net(HOST, HOST.all_slots[:3])
LIFE = LifecycleSpec(auto_forward=("TRAIN", "HOLD"), permissive_gates=False)
WATCH = GovernorSpec(window=4, min_samples=2, snapshot_every=3)
ALLOW = scenes.make_limits(
    scenes.make_slots([[{}] * 3]), auto_forward=("TRAIN", "HOLD"), max_seeds=2
)
LENGTH, MEASURED = 20, {"every": 2, "episode_length": 20, "signal_spec": SignalSpec()}

states = strategies.env_states(3, 3, min_envs=2, min_slots=3)
losses = st.sampled_from((1.0, 0.5, 2.25, 9.0, float("nan")))


def acting(state):
    """A state and any action on it, decoded."""
    return strategies.actions(state.slots, -1, 6).map(
        lambda heads: (state, decode(heads, state.slots, ALLOW))
    )


def validated(state):
    """A state and made-up accuracies of its coalitions."""
    accuracy, coalition, evaluated, _ = measured(state.slots)
    loss = state.signals.val_loss
    names = {"accuracy": accuracy, "coalition": coalition, "evaluated": evaluated, "loss": loss}
    return state, Validation(**names, batch_size=[len(state)])


@st.composite
def watched(draw, envs=states):
    """A state, a loss, and what training skipped."""
    state = draw(envs)
    loss, skipped = (
        draw(st.lists(each, min_size=len(state), max_size=len(state)))
        for each in (losses, st.integers(0, 3))
    )
    return (
        state,
        make_validation(loss, [50.0] * len(state)),
        make_train_metrics(skipped),
    )


def seen(state):
    return observe(state, ALLOW, net=NET, episode_length=LENGTH, param_budget=1000)


def known(state):
    facts = state_facts(state, ALLOW, net=NET)
    return facts.conditions.transpose(0, 1), facts.host_params, facts.seed_params


# name -> (step, what it takes, in which ways it is asked)
def with_fossils(state):
    """Place fossils of one kind in all empty slots."""
    empty = state.slots.stage == int(Stage.DORMANT)
    return place_fossils(state, torch.where(empty, 1, -1), torch.zeros_like(state.slots.stage))


DRAWN = {
    "apply.apply_action": (
        partial(apply_action, lifecycle=LIFE),
        states.flatmap(acting),
        {"slots": True},
    ),
    "score_step.attribute": (partial(attribute, **MEASURED), states.map(validated), {}),
    "govern_step.first_snapshot": (first_snapshot, states, {"slots": True}),
    "govern_step.govern": (partial(govern, spec=WATCH, minibatches=3), watched(), {"slots": True}),
    "observe_step.observe": (seen, states, {"tolerance": 1e-6}),
    "observe_step.state_facts": (known, states, {}),
    "reset_step.place_fossils": (with_fossils, states, {"slots": True}),
    "tick_step.tick": (partial(tick, lifecycle=LIFE), states, {"slots": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "given", "ways"), DRAWN.values(), ids=DRAWN)
def test_the_laws_hold_on_drawn_states(step, given, ways, request):
    name = request.node.callspec.id
    check_step(step, given, examples=one_in(8), name=name, skip=("graph",), **ways)


ADAPTIVE = strategies.env_states(3, 3, min_envs=2, min_slots=3, optimizer=OPTIMIZERS["adamw"])
MOVES_OPTIMIZERS = {
    "govern_step.first_snapshot": ADAPTIVE,
    "govern_step.govern": watched(ADAPTIVE),
    "tick_step.tick": ADAPTIVE,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES_OPTIMIZERS)
def test_steps_that_move_seeds_keep_the_laws_under_adamw(name):
    step, _, ways = DRAWN[name]
    examples = {"examples": one_in(8), "name": name, "skip": ("graph",)}
    check_step(step, MOVES_OPTIMIZERS[name], **examples, **ways)


class Scene:
    """Five epochs in the middle of a random episode, and everything their steps were given."""

    def __init__(self):
        self.setup = build_setup(tiny(envs=8, episode_length=14))
        self.net, self.spec, self.world = self.setup.net, self.setup.spec, world_of(self.setup)
        self.whole = live(self.world)
        self.epochs = self.whole[6:11]
        self.policy = build_arm("ppo", self.setup).policy
        self.learner = init_ppo(self.policy, self.world.keys[0])
        self.rollout = Rollout(14, envs=8, slots=len(self.net.slots))
        for t, one in enumerate(self.whole):
            self.rollout.write(t, one)
        self.epoch = next(one for one in self.whole[6:] if self.births(one).any())
        self.state = self.epoch.step.ticked

    def births(self, epoch):
        return (epoch.before.slots.stage == int(Stage.DORMANT)) & (
            epoch.step.acted.slots.stage == int(Stage.GERMINATED)
        )

    def noise(self, *shape):
        """Uniform noise, five times another one."""
        draw = torch.Generator().manual_seed(1)
        return [torch.rand(*shape, generator=draw) for _ in range(5)]

    def asked(self, state):
        return coalitions(state.slots, torch.zeros(len(state), 2, len(self.net.slots)), pairs=2)

    def plan(self, state, born=None):
        born = torch.zeros_like(state.slots.stage, dtype=torch.bool) if born is None else born
        numbers = plans.plan_counts(state.slots, *self.asked(state), born, net=self.net)
        return plans.read_plan(numbers.tolist(), self.net)


@pytest.fixture(scope="module")
def scene():
    return Scene()


def training(s):
    """One minibatch from the state to the state."""

    def train(state, batch, plan):
        progress = start_epoch(state, plan, net=s.net)
        progress, _ = train_minibatch(
            progress, batch, plan, net=s.net, spec=s.spec.host, lifecycle=s.spec.lifecycle
        )
        return finish_epoch(state, progress, plan, net=s.net)

    def alone(args, env):
        state, batch = (part[env : env + 1] for part in args[:2])
        return state, batch, s.plan(state)

    batches = [
        s.world.feed.batch(s.world.feed.epoch(one.step.ticked), torch.tensor([0]))
        for one in s.epochs
    ]
    plan = s.plan(s.state)
    return (
        train,
        [(s.state, batch, plan) for batch in batches],
        {"select_env": alone, "tolerance": 1e-4},
    )


def validating(s):
    split, plan = s.setup.dataset.validation, s.plan(s.state)

    def alone(args, env):
        state = args[0][env : env + 1]
        return state, split, *s.asked(state), s.plan(state)

    def call(state, images, coalition, evaluated, plan):
        return validate(state, images, coalition, evaluated, plan, net=s.net)

    hosts = [s.state.replace(host=one.step.ticked.host) for one in s.epochs]
    return (
        call,
        [(state, split, *s.asked(state), plan) for state in hosts],
        {"select_env": alone, "tolerance": 1e-4},
    )


def sowing(s):
    born = s.births(s.epoch)
    rows = new_seed_rows(born, s.plan(s.state, born))
    drawn = [
        tuple(u.expand(len(r), -1) for r, u in zip(rows, parts, strict=True))
        for parts in zip(*(s.noise(1, n) for n in s.net.seed_sizes), strict=True)
    ]
    return (
        partial(init_seeds, net=s.net),
        [(s.state, rows, noise) for noise in drawn],
        {"skip": ("neighbours",)},
    )


def telling(s):
    born = s.births(s.epoch)
    plan = s.plan(s.state, born)
    return (
        new_seed_rows,
        [(torch.roll(born, shift, 0), plan) for shift in range(5)],
        {"skip": ("neighbours",)},
    )


def bearing(s):
    kinds = torch.arange(1, 8)
    return (
        partial(init_seed_params, s=0, net=s.net),
        [(kinds, noise) for noise in s.noise(7, s.net.seed_sizes[0])],
        {},
    )


def paying(s):
    terms = {"target_loss": 0.05, "episode_length": 14}
    return [(e.step.governed, score_inputs(e, **terms)) for e in s.epochs]


def scoring(s):
    return partial(score, rule=s.setup.rule, param_budget=s.setup.budget), paying(s), {}


def telling_rules(s):
    return reward_inputs, paying(s), {}


def resetting(s):
    instance, ledger = s.epoch.before.instance, s.epoch.before.ledger

    def call(key, drawn, noise, carried):
        return reset(key, drawn, noise, episode=1, ledger=carried, net=s.net, window=20)

    return (
        call,
        [(s.world.keys, instance, noise, ledger) for noise in s.noise(8, s.net.host_size)],
        {},
    )


def planning(s):
    call = partial(plans.plan_counts, net=s.net)
    given = [(e.step.ticked.slots, *s.asked(e.step.ticked), s.births(e)) for e in s.epochs]
    return call, given, {"skip": ("neighbours",)}  # it counts over all envs


def acting_by_policy(s):
    hidden = s.policy.initial_hidden(8)
    noise, shown = (
        s.noise(8, 41),
        [(epoch.inputs.observation, epoch.inputs.masks) for epoch in s.epochs],
    )
    given = [(s.learner.params, *seen, hidden, u) for seen, u in zip(shown, noise, strict=True)]
    return s.policy.act, given, {"tolerance": 1e-5}


def updating(s):
    ppo = s.spec.ppo
    deals = [
        minibatch_indices(noise)
        for noise in s.noise(ppo.epochs, 8 // ppo.minibatches, ppo.minibatches)
    ]
    given = [(s.learner, s.rollout.rows, dealt) for dealt in deals]

    def call(learner, rows, dealt):
        weights = coefficients_at(ppo, 0)
        return update_ppo(learner, rows, dealt, weights, policy=s.policy, round=Round(s.spec, 0))

    # it learns from all envs, in single precision
    return call, given, {"skip": ("neighbours", "kinds")}


def drawing(s):
    def call(key, epoch):
        return rng.gumbel(rng.stream(key, Purpose.ACTION, epoch=epoch), 41)

    return call, [(s.world.keys, torch.full((8,), t)) for t in range(5)], {"tolerance": 1e-6}


RECORDED = {
    "ppo.update": updating,
    "plan.plan_counts": planning,
    "policy.policy.act": acting_by_policy,
    "reset_step.reset": resetting,
    "score_step.reward_inputs": telling_rules,
    "score_step.score": scoring,
    "reset_step.init_seed_params": bearing,
    "reset_step.new_seed_rows": telling,
    "reset_step.init_seeds": sowing,
    "state.rng": drawing,
    "train.train_minibatch": training,
    "validate_step.validate": validating,
}

# `test_compiled.py` has the graphs of all other steps, with the results of the eager form.
GRAPH_OF_ITS_OWN = ("reset_step.init_seed_params", "state.rng")


@pytest.mark.slow
@pytest.mark.parametrize("row", RECORDED.values(), ids=RECORDED)
def test_the_laws_hold_in_a_run(row, scene, request):
    step, given, ways = row(scene)
    name = request.node.callspec.id
    skip = {*ways.get("skip", ()), *([] if name in GRAPH_OF_ITS_OWN else ["graph"])}
    check_step(step, st.sampled_from(given), examples=2, name=name, **{**ways, "skip": skip})


def test_every_step_has_its_row():
    names = set()
    for module in pkgutil.iter_modules(steps.__path__):
        part = importlib.import_module(f"morphogen.steps.{module.name}")
        for name, function in inspect.getmembers(part, inspect.isfunction):
            if function.__module__ == part.__name__ and not name.startswith("_"):
                names.add(f"{module.name}.{name}")
    ends_of_an_epoch = {"train.start_epoch", "train.finish_epoch"}  # in the row of the minibatch
    # in the row of the minibatch too
    sums = {name for name in names if name.startswith("minibatch_tally.")}
    assert names - ends_of_an_epoch - sums <= {*DRAWN, *RECORDED}


def test_the_state_keeps_its_leaves_and_dtypes_through_an_epoch(scene):
    before, after = (
        tree_equality.leaves(state) for state in (scene.epoch.before, scene.epoch.after)
    )
    assert {path: (leaf.dtype, leaf.shape) for path, leaf in before.items()} == {
        path: (leaf.dtype, leaf.shape) for path, leaf in after.items()
    }


def test_the_record_is_made_without_a_read(scene):
    on_meta = tree_map(
        lambda leaf: leaf.to("meta"), scene.epoch, is_leaf=lambda leaf: hasattr(leaf, "to")
    )
    found = build_record(on_meta)
    assert {leaf.device.type for leaf in found.values()} == {"meta"}
    assert sum(leaf.numel() * leaf.element_size() for leaf in found.values()) < 8 * 2_000, (
        "the record is small"
    )
