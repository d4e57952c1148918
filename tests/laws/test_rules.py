"""The laws hold for every rule, by a table: a new rule is a new row, and without one a test
fails.
"""

import importlib
import inspect
import pkgutil
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.drawn_tensors import measured, permute_action, tensors
from support.manual_gates import by_hand
from support.plain_torch import blend_rows
from support.profiles import one_in

from morphogen import rules
from morphogen.config.groups import GovernorSpec, RewardSpec, SignalSpec
from morphogen.config.host import CnnSpec
from morphogen.config.parts import RULES as RULES_OF
from morphogen.config.registry import BUILT_IN
from morphogen.kernels import blend
from morphogen.ppo import advantage
from morphogen.rules import (
    attribution,
    counts,
    decoding,
    features,
    gates,
    health,
    legality,
    loss_scale,
    shapley_values,
    signals,
    stages,
)
from morphogen.rules.health import GradStats
from morphogen.rules.rewards.table import build_rule
from morphogen.testing import strategies
from morphogen.testing.builders import scenes
from morphogen.testing.builders.permute import permute
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.testing.laws import check, check_reward, check_rule
from morphogen.testing.strategies.slots import points
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import Stage

LIMITS = Limits(
    (True, False, True), max_seeds=2, auto_forward=("BLEND",), blueprints=("norm", "attention")
)
HOST = CnnSpec(base=4, blocks=3, kernel=3, pools=0, channels_in=1, size=8, classes=10)
LIFE, WATCH = by_hand(), GovernorSpec(window=4, min_samples=2)
STRICT = by_hand(permissive_gates=False)
NUMBERS = {
    "attribution.configuration_count",
    "legality.relevant_heads",
    "shapley_values.interaction_weights",
    "shapley_values.shapley_weights",
}  # without tensors
# modules of other packages under the laws of rules
BESIDE_RULES = (advantage, blend)
COUNTS, GATES = ((0, 10, 20, 30, *[40] * 9),) * 3, (1, 1, 1)
BUDGET, LENGTH, GAMMA = 48_832, 9, 0.995
R, I, B = torch.float32, torch.int64, torch.bool  # noqa: E741

slots = strategies.slot_states(3, 3, min_envs=2, min_slots=3)
states = strategies.env_states(3, 3, min_envs=2, min_slots=3)
losses = st.sampled_from((0.5, 1.0, 2.25, 4.5, 11.0, float("nan")))
shares = st.integers(0, 8).map(lambda i: i / 8)
yes = st.booleans()


def beside(part, *kinds):
    """A drawn part with more tensors of its envs: (part, tensor, ...)."""
    return part.flatmap(
        lambda whole: tensors(*kinds, envs=len(whole)).map(lambda more: (whole, *more))
    )


def masks_of(part):
    return legality.action_masks(part, LIMITS)


def acted(part):
    return strategies.actions(part, -1, 7).map(lambda heads: (heads, part))


def declared(part):
    """Masks, any entry of a schedule, and whether it is there."""
    present = st.lists(yes, min_size=len(part), max_size=len(part)).map(torch.tensor)
    return st.tuples(st.just(masks_of(part)), strategies.actions(part, -1, 7), present)


def judged(state):
    found = attribution.attribution(*measured(state.slots))
    return state.signals, state.signals.val_loss, found


ONE, CELL = (), (3,)
gauges = tensors(
    (shares, R, CELL), (shares, R, CELL), (shares, R, CELL), (st.integers(0, 3).map(float), R, CELL)
)
rollout = tensors(*[(points, R, ONE)] * 3, (yes, B, ONE), (yes, B, ONE), lead=(4,))
blends = tensors(*[(shares, R, (2, 4))] * 2, (shares, R, ONE), (yes, B, ONE))
stage_of = slots.map(lambda part: part.stage)
SLOTTED = {"slots": True, "slot_axis": 1}  # what belongs to slots is [E, S]
ALL = {"skip": ("neighbours",)}  # a statistic over all envs, which is what it is for


def turned(args, order):
    return permute_action(args[0], order), permute(args[1], order)


def vacated(part, removed, cleared):
    return stages.vacate(part, removed=removed, cleared=cleared & ~removed)


def at_once(part, where, target):
    return stages.retarget(
        part, where, target, steps=part.tempo, shape=part.blend_curve, steepness=12.0
    )


def blended(way):
    """The features of rows in dim 0, their deltas all blended in one way."""

    def run(delta, host, alpha, training):
        delta, host = delta.movedim(0, -2), host.movedim(0, -2)
        return blend_rows(host, delta, alpha, training, algorithm=way).movedim(-2, 0)

    return run


def heard(alpha, training):
    """Report per row, which has a gate: its weights, whether its own seed is silent, and whether it
    depends on that seed.
    """
    own = torch.arange(alpha.shape[0], device=alpha.device)
    seeds = blend.build_seed_index(own, alpha, training, own, count=alpha.shape[0])
    return seeds.factor, seeds.gate_factor, seeds.gate_silent, seeds.source == own


def remembered(pair):
    """Slots, signals, shares and costs of the same envs."""
    whole, share, cost = pair
    return whole.slots, whole.signals, share, cost


def health_of(norm, vanishing, exploding, count, sound):
    return health.gradient_health(GradStats(norm, vanishing, exploding, count), sound)


# name -> (rule, what it takes, in which ways it is asked)
RULES = {
    "advantage.discounted_sum": (
        partial(advantage.discounted_sum, factor=0.9),
        rollout.map(lambda r: r[2:4]),
        {"env_axis": 1},
    ),
    "advantage.gae": (partial(advantage.gae, gamma=0.9, gae_lambda=0.8), rollout, {"env_axis": 1}),
    "advantage.standardise": (advantage.standardise, rollout.map(lambda r: r[2:4]), ALL),
    "advantage.subtract_group_mean": (
        partial(advantage.subtract_group_mean, group=1),
        tensors((points, R, ONE), (yes, B, ONE), lead=(4,)),
        {"env_axis": 1},
    ),
    "stages.advance_ramp": (stages.advance_ramp, beside(slots, (yes, B, CELL)), SLOTTED),
    "stages.curve": (
        stages.curve,
        tensors(
            (shares, R, CELL), (st.integers(0, 3), I, CELL), (points.map(lambda x: x + 1), R, CELL)
        ),
        SLOTTED,
    ),
    "stages.retarget": (at_once, beside(slots, (yes, B, CELL), (shares, R, CELL)), SLOTTED),
    "attribution.attribution": (attribution.attribution, slots.map(measured), {}),
    "attribution.coalitions": (
        partial(attribution.coalitions, pairs=2),
        beside(slots, (shares, R, (2, 3))),
        {},
    ),
    "attribution.is_measured_epoch": (
        partial(attribution.is_measured_epoch, every=3, episode_length=9),
        tensors((st.integers(0, 9), I, ONE)),
        {},
    ),
    "attribution.players": (attribution.players, slots, SLOTTED),
    "blend.blend": (blended("add"), blends, {}),
    "blend.blend (multiplied)": (blended("multiply"), blends, {}),
    "blend.build_seed_index": (heard, tensors((shares, R, ONE), (yes, B, ONE)), {}),
    "counts.parameter_price": (
        partial(counts.parameter_price, param_budget=100),
        tensors((st.integers(0, 900), I, CELL), (shares, R, ONE)),
        {"tolerance": 1e-6},
    ),
    "counts.used_channels": (
        partial(counts.used_channels, channels=16),
        tensors((shares, R, ONE)),
        {},
    ),
    "counts.seed_params": (
        partial(counts.seed_params, counts=COUNTS, gate_counts=GATES),
        slots,
        SLOTTED,
    ),
    "decoding.decode": (
        partial(decoding.decode, limits=scenes.make_limits(scenes.make_slots([[{}] * 3]))),
        slots.flatmap(acted),
        {**SLOTTED, "permute_args": turned},
    ),
    "attribution.detect_false_credit": (
        attribution.detect_false_credit,
        beside(slots, (points.map(lambda x: x - 50), R, ONE)),
        {},
    ),
    "features.occupancy_features": (
        partial(features.occupancy_features, limits=LIMITS),
        slots,
        {"slots": True, "tolerance": 1e-6},
    ),
    "features.feedback_features": (features.feedback_features, states.map(lambda s: s.signals), {}),
    "features.loss_of_feature": (
        features.loss_of_feature,
        tensors((st.integers(-1, 1).map(float), R, ONE)),
        {},
    ),
    "features.price_of_feature": (
        features.price_of_feature,
        tensors((st.integers(-8, 3).map(float), R, ONE)),
        {},
    ),
    "features.size_features": (
        features.size_features,
        beside(slots, (shares, R, CELL)),
        {"tolerance": 1e-6},
    ),
    "features.progress_features": (
        partial(features.progress_features, episode_length=20),
        beside(states, (shares, R, CELL), (shares, R, CELL)).map(remembered),
        SLOTTED,
    ),
    "features.lifecycle_features": (
        partial(features.lifecycle_features, enabled=(True,) * 3),
        slots,
        SLOTTED,
    ),
    "features.measurement_features": (
        features.measurement_features,
        states.map(lambda s: s.signals),
        {},
    ),
    "features.signed_log": (features.signed_log, tensors((points, R, ONE)), {"tolerance": 1e-6}),
    "features.instance_features": (
        partial(features.instance_features, classes=10),
        states.map(lambda s: s.instance),
        {"tolerance": 1e-6},
    ),
    "features.contribution_features": (features.contribution_features, slots, SLOTTED),
    "gates.check_gate": (
        partial(gates.check_gate, spec=LIFE),
        beside(slots, (points, R, ONE), (st.integers(0, 9), I, CELL)),
        SLOTTED,
    ),
    "gates.check_gate (strict)": (
        partial(gates.check_gate, spec=STRICT),
        beside(slots, (points, R, ONE), (st.integers(0, 9), I, CELL)),
        SLOTTED,
    ),
    "gates.gate_before": (gates.gate_before, stage_of, SLOTTED),
    "health.gradient_health": (
        health_of,
        tensors(*[(shares, R, CELL)] * 4, (yes, B, CELL)),
        SLOTTED,
    ),
    "health.layer_health": (
        health.layer_health,
        tensors((shares, R, CELL), (shares, R, CELL), (yes, B, CELL)),
        SLOTTED,
    ),
    "health.gradient_ratio": (
        health.gradient_ratio,
        tensors(
            (shares, R, CELL),
            (st.integers(0, 9), I, CELL),
            (shares, R, (1,)),
            (st.integers(0, 9), I, (1,)),
        ),
        {},
    ),
    "health.moving_average": (
        health.moving_average,
        tensors((shares, R, CELL), (yes, B, CELL), (shares, R, CELL)),
        SLOTTED,
    ),
    "legality.action_masks": (partial(legality.action_masks, limits=LIMITS), slots, {}),
    "legality.action_count": (legality.action_count, slots.map(masks_of), {}),
    "legality.conditions": (partial(legality.conditions, limits=LIMITS), slots, {"env_axis": 1}),
    "legality.restrict_masks": (legality.restrict_masks, slots.flatmap(declared), {}),
    "legality.narrow_masks": (
        legality.narrow_masks,
        beside(slots, (yes, B, (6, 3))).map(lambda pair: (masks_of(pair[0]), pair[1])),
        {"slots": True, "slot_axis": 2},
    ),
    "legality.legal": (
        legality.legal,
        slots.map(lambda part: (part, scenes.make_limits(part))),
        {"slots": True, "slot_axis": 2},
    ),
    "shapley_values.interactions": (
        partial(shapley_values.interactions, positions=3),
        tensors((points, R, (8,))),
        {},
    ),
    "shapley_values.marginals": (
        shapley_values.marginals,
        tensors((points, R, (2, 4)), (yes, B, (2, 3, 3))),
        {},
    ),
    "shapley_values.shapley": (
        partial(shapley_values.shapley, positions=3),
        tensors((points, R, (8,))),
        {},
    ),
    "signals.recent_min_accuracy": (
        partial(signals.recent_min_accuracy, epochs=3),
        states.map(lambda s: s.signals),
        {},
    ),
    "signals.update_signals": (
        partial(signals.update_signals, spec=SignalSpec()),
        states.map(judged),
        {},
    ),
    **{
        f"stages.{name}": (getattr(stages, name), stage_of, SLOTTED)
        for name in ("active", "blended", "clamp_stage", "cooling", "occupied")
    },
    "stages.is_legal_move": (
        stages.is_legal_move,
        tensors(*[(st.integers(-1, 12), I, CELL)] * 2),
        SLOTTED,
    ),
    "stages.promote": (
        stages.promote,
        beside(
            slots,
            (yes, B, CELL),
            (st.sampled_from(list(map(int, Stage))), I, CELL),
            (points, R, ONE),
        ),
        SLOTTED,
    ),
    "stages.remove": (stages.remove, beside(slots, (yes, B, CELL)), SLOTTED),
    "stages.vacate": (vacated, beside(slots, (yes, B, CELL), (yes, B, CELL)), SLOTTED),
    "stages.transition": (
        stages.transition,
        beside(slots, (yes, B, CELL), (st.integers(-1, 10), I, CELL), (points, R, ONE)),
        SLOTTED,
    ),
    "health.judge_loss": (
        partial(health.judge_loss, spec=WATCH),
        tensors(
            (losses, R, ONE),
            (yes, B, ONE),
            (losses, R, (4,)),
            (st.integers(0, 9), I, ONE),
            (shares, R, ONE),
        ),
        {},
    ),
    "health.rollback_cause": (
        partial(health.rollback_cause, spec=WATCH),
        tensors((st.integers(0, 4), I, ONE), (st.integers(0, 4), I, ONE)),
        {},
    ),
    "loss_scale.needs_lower_scale": (
        loss_scale.needs_lower_scale,
        tensors((yes, B, ONE), *[(st.integers(0, 12), I, CELL)] * 2),
        SLOTTED,
    ),
    "loss_scale.next_loss_scale": (
        loss_scale.next_loss_scale,
        tensors(
            (st.sampled_from((1.0, 256.0, 2.0**24)), R, ONE),
            (st.integers(0, 1_999), I, ONE),
            (yes, B, ONE),
        ),
        {},
    ),
}


# value, both ends of the shaping, penalty, dearest rent
OWN_BOUNDS = (-3.0 - 3 * 60_000 / (BUDGET * LENGTH), 3.0)
ANYTIME = {"skip": ("graph",)}  # `test_rule_table.py` compiles own rules
OWN = {"gamma": GAMMA, **ANYTIME}
REWARDS: dict[str, dict] = {  # rule -> what else is asked of it
    **dict.fromkeys(("sparse", "delta", "value", "rent", "loss"), OWN),
    "anytime": ANYTIME,
    **{name: {} for name in RULES_OF.builtin() if RULES_OF.origin(name) != BUILT_IN},  # of extras
}


def reward_rule(name):
    spec = RewardSpec(rule=name)
    return build_rule(spec, param_budget=BUDGET, episode_length=LENGTH, gamma=GAMMA)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "given", "ways"), RULES.values(), ids=RULES)
def test_the_laws_hold(rule, given, ways, request):
    # `test_compiled.py` compiles the public rules, and the others inside of steps and epochs.
    skip = {*ways.get("skip", ()), "graph"}
    name = request.node.callspec.id
    check_rule(rule, given, examples=one_in(4), name=name, **{**ways, "skip": skip})


@pytest.mark.slow
@pytest.mark.parametrize("name", REWARDS)
def test_the_laws_of_rewards_hold(name, monkeypatch):
    monkeypatch.setattr(check, "BACKEND", "eager")  # a graph of the same operators
    check_reward(reward_rule(name), examples=one_in(4), name=name, **REWARDS[name])


@given(steps=strategies.reward_episodes(max_steps=3))
def test_rewards_of_own_rules_have_bounds(steps):
    for name in (name for name in REWARDS if RULES_OF.origin(name) == BUILT_IN):
        least, most = play_rule(reward_rule(name), steps)[0].aminmax()
        assert OWN_BOUNDS[0] - 1e-9 <= least <= most <= OWN_BOUNDS[1] + 1e-9


def test_every_reward_rule_has_its_row():
    assert set(RULES_OF.builtin()) == set(REWARDS)


def test_every_rule_has_its_row():
    """Functions of tensors in `rules` and in `BESIDE_RULES`, but for the reward rules, which have
    their own rows.
    """
    in_rules = [
        importlib.import_module(f"morphogen.rules.{module.name}")
        for module in pkgutil.iter_modules(rules.__path__)
    ]
    names = set()
    for module in (*in_rules, *BESIDE_RULES):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                names.add(f"{module.__name__.rpartition('.')[2]}.{name}")
    assert names - NUMBERS == {name.partition(" ")[0] for name in RULES}
