"""The laws hold for every rule and step of the white box, by a table: without a row of its own a
rule fails.
"""

import inspect
from functools import partial

import pytest
import torch
from hypothesis import strategies as st
from support.drawn_tensors import measured, tensors
from support.profiles import one_in

import morphogen as mg
from morphogen.extras.whitebox import formula, growth_plan
from morphogen.extras.whitebox.formula_steps import skip_training, validate_by_formula
from morphogen.testing import strategies
from morphogen.testing.laws import check_rule, check_step

# without tensors
NUMBERS = {"growth_plan.next_codes", "growth_plan.seed_code", "growth_plan.view_transitions"}
COUNTS = (0, 10, 20, 30, *[40] * 9)
PLAN = growth_plan.PlanSpec(
    horizon=3, hazard=0.25, views=(0, 1, 2), counts=(COUNTS,), param_budget=100
)
ONE, CELL = (), (3,)
R, I = torch.float32, torch.int64  # noqa: E741

states = strategies.env_states(3, 3, min_envs=2, min_slots=3)
shares = st.integers(0, 8).map(lambda i: i / 8)


def ripening(state):
    """Inputs of the white box, with all coalitions."""
    _, coalition, _, slots = measured(state.slots)
    return state.instance, slots, state.clock.epoch, coalition


def membership(state):
    """All coalitions, and the seeds that run."""
    _, coalition, _, slots = measured(state.slots)
    return coalition, mg.rules.players(slots)


def viewed(state):
    """Inputs of the white box with regimes, with all coalitions."""
    instance, slots, _, coalition = ripening(state)
    return instance.replace(view_code=instance.view_code % 3), slots, coalition


def planned(price):
    """Moves of a plan, the envs first."""
    return growth_plan.best_moves(price, PLAN).movedim(1, 0)


def questioned(state):
    """A state and every coalition of its seeds."""
    return state, *mg.rules.coalitions(state.slots, torch.zeros(len(state), 2, 3), pairs=2)


RULES = {
    "formula.members": (formula.members, states.map(membership), {}),
    "formula.coalition_accuracy": (formula.coalition_accuracy, states.map(ripening), {}),
    "formula.optimal_value": (
        partial(
            formula.optimal_value,
            counts=((0, 9, 5), (0, 4, 7)),
            blueprints=(1, 2),
            last=4,
            param_budget=100,
        ),
        states.map(lambda s: s.instance),
        {"tolerance": 1e-6},
    ),
    "formula.seed_gain": (
        formula.seed_gain,
        tensors(
            *[(shares, R, ONE)] * 2, (st.integers(0, 7), I, CELL), (st.integers(0, 9), I, CELL)
        ),
        {},
    ),
    "formula.best_blueprint": (formula.best_blueprint, tensors((shares, R, ONE)), {}),
    "formula.first_useful_epoch": (formula.first_useful_epoch, tensors((shares, R, ONE)), {}),
    "growth_plan.view_accuracy": (growth_plan.view_accuracy, states.map(viewed), {}),
    "growth_plan.view_points": (growth_plan.view_points, tensors((st.integers(0, 2), I, ONE)), {}),
    "growth_plan.epoch_rewards": (
        partial(growth_plan.epoch_rewards, spec=PLAN),
        tensors((shares, R, ONE)),
        {"tolerance": 1e-6},
    ),
    "growth_plan.best_moves": (planned, tensors((shares, R, ONE)), {}),
    "growth_plan.planned_value": (
        lambda price, views: growth_plan.planned_value(price, views.T, PLAN),
        tensors((shares, R, ONE), (st.integers(0, 2), I, (3,))),
        {"tolerance": 1e-6},
    ),
}
STEPS = {
    "validate_by_formula": (
        partial(validate_by_formula, by_view=False),
        states.map(questioned),
        {},
    ),
    "skip_training": (skip_training, states, {"slots": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "given", "ways"), RULES.values(), ids=RULES)
def test_the_laws_of_rules_hold(rule, given, ways, request):
    check_rule(rule, given, examples=one_in(3), name=request.node.callspec.id, **ways)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "given", "ways"), STEPS.values(), ids=STEPS)
def test_the_laws_of_steps_hold(step, given, ways, request):
    check_step(step, given, examples=one_in(5), name=request.node.callspec.id, **ways)


def test_every_rule_has_its_row():
    names = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (formula, growth_plan)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert names - NUMBERS == set(RULES)
