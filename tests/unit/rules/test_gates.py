"""Gates: what is asked before a slot moves up."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.manual_gates import by_hand

from morphogen.rules.gates import check_gate
from morphogen.testing.builders.scenes import make_slot
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import AlphaMode, Check, Stage

S = Stage
PERMISSIVE, STRICT = by_hand(), by_hand(permissive_gates=False)
UP = {
    S.GERMINATED: S.TRAINING,
    S.TRAINING: S.BLENDING,
    S.BLENDING: S.HOLDING,
    S.HOLDING: S.FOSSILIZED,
}
# Slots that pass with nothing to spare, under both sets of gates.
READY = {
    S.GERMINATED: {},
    S.TRAINING: {
        "epochs_in_stage": 10,
        "gradient_valid": True,
        "gradient_health": 0.7,
        "accuracy_at_stage_start": 49.5,
        "gradient_ratio_valid": True,
        "gradient_ratio": 0.1,
    },
    S.BLENDING: {"epochs_in_stage": 10, "alpha": 1.0, "alpha_target": 1.0},
    S.HOLDING: {"contribution_valid": True, "contribution": 1.0, "alpha": 1.0, "alpha_target": 1.0},
}


def ask(slots, spec, to=None, accuracy=50.0):
    """Return whether the single slot passes, and the failed checks."""
    target = torch.tensor([[UP.get(slots.stage.item(), 0) if to is None else to]])
    passed, failed = check_gate(slots, torch.tensor([accuracy]), target, spec=spec)
    return passed.item(), {check for check in Check if int(failed.item()) >> check & 1}


@pytest.mark.parametrize("spec", [PERMISSIVE, STRICT], ids=["permissive", "strict"])
@pytest.mark.parametrize("stage", READY)
def test_a_slot_at_the_boundary_of_every_check_passes(stage, spec):
    assert ask(make_slot(stage=stage, **READY[stage]), spec) == (True, set())


@pytest.mark.parametrize(
    ("stage", "spec", "worse", "check"),
    [
        (S.TRAINING, PERMISSIVE, {"epochs_in_stage": 9}, Check.TOO_EARLY),
        (S.TRAINING, PERMISSIVE, {"gradient_valid": False}, Check.GRADIENT_UNMEASURED),
        (S.TRAINING, PERMISSIVE, {"exploding": True}, Check.EXPLODING),
        (S.TRAINING, PERMISSIVE, {"gradient_health": 0.69}, Check.UNHEALTHY_GRADIENT),
        (S.TRAINING, STRICT, {"epochs_in_stage": 9}, Check.TOO_EARLY),
        (S.TRAINING, STRICT, {"accuracy_at_stage_start": 49.75}, Check.TOO_LITTLE_IMPROVEMENT),
        (S.TRAINING, STRICT, {"gradient_ratio_valid": False}, Check.RATIO_UNMEASURED),
        (S.TRAINING, STRICT, {"gradient_ratio": 0.09}, Check.RATIO_LOW),
        (S.BLENDING, PERMISSIVE, {"alpha_target": 0.7, "alpha": 0.7}, Check.TARGET_NOT_FULL),
        (S.BLENDING, PERMISSIVE, {"alpha": 0.9}, Check.NOT_AT_TARGET),
        (S.BLENDING, PERMISSIVE, {"alpha_mode": AlphaMode.UP}, Check.NOT_AT_TARGET),
        (S.BLENDING, STRICT, {"epochs_in_stage": 9}, Check.TOO_EARLY),
        (S.HOLDING, PERMISSIVE, {"contribution_valid": False}, Check.CONTRIBUTION_UNMEASURED),
        (S.HOLDING, PERMISSIVE, {"gradient_valid": True, "exploding": True}, Check.EXPLODING),
        (S.HOLDING, STRICT, {"contribution": 0.99}, Check.CONTRIBUTION_LOW),
        (S.HOLDING, STRICT, {"contribution": -2.0}, Check.CONTRIBUTION_LOW),
        (S.HOLDING, STRICT, {"gradient_valid": True, "exploding": True}, Check.EXPLODING),
    ],
)
def test_each_check_alone_is_enough_to_decline(stage, spec, worse, check):
    assert ask(make_slot(stage=stage, **{**READY[stage], **worse}), spec) == (False, {check})


@pytest.mark.parametrize(
    ("stage", "spec", "worse", "check"),
    [
        (
            S.TRAINING,
            PERMISSIVE,
            {"gradient_valid": False, "exploding": True, "gradient_health": 0.0},
            3,
        ),
        (S.TRAINING, PERMISSIVE, {"exploding": True, "gradient_health": 0.0}, 4),
        (S.TRAINING, STRICT, {"gradient_ratio_valid": False, "gradient_ratio": 0.0}, 7),
        (
            S.HOLDING,
            STRICT,
            {"contribution_valid": False, "gradient_valid": True, "exploding": True},
            11,
        ),
        (S.HOLDING, STRICT, {"contribution_valid": False, "contribution": 0.0}, 11),
    ],
)
def test_what_was_not_measured_is_not_judged(stage, spec, worse, check):
    assert ask(make_slot(stage=stage, **{**READY[stage], **worse}), spec) == (False, {Check(check)})


def test_an_alpha_within_the_tolerance_is_at_its_target():
    near = make_slot(stage=S.BLENDING, alpha=1 - 5e-7, alpha_target=1.0)
    assert ask(near, PERMISSIVE) == (True, set())


@pytest.mark.parametrize(
    ("stage", "spec", "leaf"),
    [
        (S.TRAINING, PERMISSIVE, "gradient_health"),
        (S.TRAINING, STRICT, "gradient_ratio"),
        (S.TRAINING, STRICT, "accuracy_at_stage_start"),
        (S.HOLDING, STRICT, "contribution"),
        (S.BLENDING, PERMISSIVE, "alpha"),
    ],
)
def test_numbers_that_are_not_numbers_never_pass(stage, spec, leaf):
    assert not ask(make_slot(stage=stage, **{**READY[stage], leaf: float("nan")}), spec)[0]


@given(slot_states(), st.sampled_from(list(S)), st.booleans())
def test_a_gate_never_opens_for_a_move_that_is_no_transition(slots, to, permissive):
    target = torch.full_like(slots.stage, int(to))
    accuracy = torch.full((len(slots),), 80.0)
    passed, failed = check_gate(slots, accuracy, target, spec=by_hand(permissive_gates=permissive))
    here = [stage for stage, up in UP.items() if up == to] + (
        [S.HOLDING] if to is S.BLENDING else []
    )
    allowed = sum(
        (slots.stage == int(stage) for stage in here), torch.zeros_like(slots.stage)
    ).bool()
    assert not passed[~allowed].any()
    assert (failed[~allowed] != 0).all()


BETTER = {
    "epochs_in_stage": lambda v: v + 5,
    "gradient_valid": lambda v: v | True,
    "exploding": lambda v: v & False,
    "gradient_health": lambda v: v + 0.3,
    "gradient_ratio": lambda v: v + 0.3,
    "gradient_ratio_valid": lambda v: v | True,
    "contribution": lambda v: v + 2,
    "contribution_valid": lambda v: v | True,
    "accuracy_at_stage_start": lambda v: v - 5,
    "alpha_mode": lambda v: v * 0,
    "alpha_target": lambda v: v * 0 + 1,
}


@given(slot_states(), st.sampled_from(list(BETTER)), st.booleans())
def test_improving_one_input_never_turns_pass_into_fail(slots, leaf, permissive):
    spec = by_hand(permissive_gates=permissive)
    if leaf == "gradient_valid":  # measuring an exploding gradient is news, and no improvement
        slots = slots.replace(exploding=torch.zeros_like(slots.exploding))
    better = slots.replace(**{leaf: BETTER[leaf](getattr(slots, leaf))})
    if leaf == "alpha_target":  # a full target is an improvement where alpha is there
        better = better.replace(alpha=torch.ones_like(slots.alpha))
    before, after = (up(part, spec)[0] for part in (slots, better))
    assert (before <= after).all()


def up(slots, spec, accuracy=60.0):
    target = torch.tensor([UP.get(stage, 0) for stage in map(S, slots.stage.flatten().tolist())])
    return check_gate(
        slots, torch.full((len(slots),), accuracy), target.view_as(slots.stage), spec=spec
    )


def test_limits_of_the_configuration_are_the_ones_asked_for():
    spec = by_hand(min_training_epochs=2, min_gradient_health=0.2)
    early = {"epochs_in_stage": 2, "gradient_valid": True, "gradient_health": 0.25}
    slots = make_slot(stage=S.TRAINING, **early)
    assert ask(slots, spec) == (True, set())
    assert ask(slots, PERMISSIVE)[1] == {Check.TOO_EARLY, Check.UNHEALTHY_GRADIENT}
