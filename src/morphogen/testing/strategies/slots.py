"""Reachable slots, limits and actions, with ages and alphas at the thresholds of the rules."""

import itertools
from collections.abc import Iterable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.testing.builders.scenes import Row, make_slots
from morphogen.testing.oracles import ramp
from morphogen.vocab.action import CURVE_SHAPE, CURVE_STEEPNESS, SPEED_TICKS, TEMPO_EPOCHS, Head, Op
from morphogen.vocab.blueprint import CNN_BLUEPRINTS
from morphogen.vocab.limits import AUTO_GATES, Limits
from morphogen.vocab.stage import (
    ACTIVE,
    BLENDED,
    COOLING,
    DEFAULT_STEEPNESS,
    AlphaMode,
    Curve,
    Stage,
)

STAGES = tuple(stage for stage in Stage if stage is not Stage.UNKNOWN)
# epochs: around every default limit, and a long episode
AGES = (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 20, 150)
OPS = tuple(op.name for op in Op if op is not Op.WAIT)
points = st.integers(0, 400).map(lambda i: i / 4)  # accuracies
_PREVIOUS_STAGES = {
    Stage.GERMINATED: (Stage.DORMANT,),
    Stage.BLENDING: (Stage.TRAINING, Stage.HOLDING),
    Stage.PRUNED: (
        Stage.TRAINING,
        Stage.GERMINATED,
        Stage.BLENDING,
        Stage.HOLDING,
        Stage.FOSSILIZED,
    ),
}


def _ramp_rows() -> list[Row]:
    """List every step of every ramp that an action can start, from before the first tick to before
    the last.
    """
    shapes = ((Curve.LINEAR, DEFAULT_STEEPNESS), (Curve.SIGMOID, DEFAULT_STEEPNESS))
    first = itertools.product(((0.0, 1.0), (0.0, 0.5), (0.0, 0.7)), TEMPO_EPOCHS, shapes)
    pairs = ((0.5, 1.0), (0.5, 0.7), (1.0, 0.0), (1.0, 0.5), (0.7, 0.5), (0.5, 0.0))
    curves = zip(CURVE_SHAPE, CURVE_STEEPNESS, strict=True)
    later = itertools.product(pairs, filter(None, SPEED_TICKS), curves)
    out: list[Row] = []
    for (start, target), ticks, (shape, steepness) in itertools.chain(first, later):
        leg = {
            "alpha_start": start,
            "alpha_target": target,
            "alpha_curve": int(shape),
            "alpha_steepness": steepness,
            "alpha_mode": int(AlphaMode.UP if target > start else AlphaMode.DOWN),
            "alpha_steps": ticks,
        }
        path = [start, *ramp(start, target, ticks, int(shape), steepness)]
        out += [{**leg, "alpha": path[done], "alpha_done": done} for done in range(ticks)]
    return out


# at a target, after a ramp or at once; the last row is the least alpha that counts as full
_RESTING_ROWS = [
    {
        "alpha": to,
        "alpha_start": start,
        "alpha_target": to,
        "alpha_curve": 1,
        "alpha_steps": ticks,
        "alpha_done": ticks,
    }
    for to, start, ticks in (
        (1.0, 0.0, 5),
        (0.5, 0.0, 3),
        (0.7, 1.0, 8),
        (1.0, 0.5, 0),
        (1 - 5e-7, 0.0, 5),
    )
]
_FULL_ROW = {**_RESTING_ROWS[0], "alpha_start": 1.0}
_GRADIENT_ROWS: list[Row] = [
    {},
    *(
        {"gradient_valid": True, "gradient_norm": 1.0, "gradient_health": health}
        for health in (1.0, 0.7, 0.5, 0.0)
    ),
    {"gradient_valid": True, "gradient_norm": 50.0, "gradient_health": 0.2, "exploding": True},
    {"gradient_valid": True, "gradient_norm": 1e-9, "gradient_health": 0.5, "vanishing": True},
]
_RATIO_ROWS: list[Row] = [
    {},
    *({"gradient_ratio_valid": True, "gradient_ratio": ratio} for ratio in (0.0, 0.1, 0.125, 1.0)),
]
_CONTRIBUTION_ROWS: list[Row] = [
    {},
    *(
        {"contribution_valid": True, "contribution": credit}
        for credit in (0.0, 1.0, 0.75, -0.5, 12.5, -40.0)
    ),
    {"contribution_valid": True, "contribution": 2.0, "velocity_valid": True, "velocity": 0.25},
    {
        "contribution_valid": True,
        "contribution": -1.0,
        "velocity_valid": True,
        "velocity": -0.5,
        "since_measured": 4,
    },
]
_INTERACTION_ROWS: list[Row] = [
    {},
    *(
        {"interaction_valid": True, "interaction_sum": x, "boost_received": max(x, 0.0)}
        for x in (0.0, 3.0, -2.5)
    ),
]


def _sample_product(*choices: list[Row], **values: Iterable[float]) -> st.SearchStrategy[Row]:
    """Merge one row of each list and one value of each name in a single draw; the first are the
    simplest.
    """
    lists = [*choices, *([{name: value} for value in each] for name, each in values.items())]
    return st.sampled_from(
        [{k: v for row in rows for k, v in row.items()} for rows in itertools.product(*lists)]
    )


_SEED_ROWS = _sample_product(
    blueprint=map(int, CNN_BLUEPRINTS),
    algorithm=(1, 2, 3),
    tempo=TEMPO_EPOCHS,
    blend_target=(1.0, 0.5, 0.7),
    blend_curve=(int(Curve.LINEAR), int(Curve.SIGMOID)),
)
_ENTRY_ROWS = {
    stage: _sample_product(
        previous_stage=map(int, _PREVIOUS_STAGES.get(stage, (Stage(max(stage - 1, 0)),))),
        previous_epochs_in_stage=(0,) if stage is Stage.GERMINATED else AGES,
    )
    for stage in STAGES
}
_TRAINING_ROWS = _sample_product(_GRADIENT_ROWS, _RATIO_ROWS)
_MEASURED_ROWS = _sample_product(_CONTRIBUTION_ROWS, _INTERACTION_ROWS)


@st.composite
def slot_rows(draw: st.DrawFn, stages: Sequence[Stage] = STAGES) -> Row:
    """Draw the non-empty leaves of one slot at the start of a step, by name.

    Args:
        stages: of the slot.

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.slot_rows([mg.Stage.DORMANT, mg.Stage.TRAINING]))
        ... def test_only_seeds_have_an_age(row):
        ...     assert ("age" in row) == (row["stage"] == mg.Stage.TRAINING)
        >>> test_only_seeds_have_an_age()
    """
    stage = draw(st.sampled_from(stages))
    if stage is Stage.DORMANT:
        return {"stage": int(stage)}
    epochs = 1 if stage in (Stage.PRUNED, Stage.RESETTING) else draw(st.sampled_from(AGES))
    age = epochs + (0 if stage is Stage.GERMINATED else draw(st.sampled_from(AGES)))
    row: Row = {"stage": int(stage), "epochs_in_stage": epochs, "age": age}
    row |= draw(_SEED_ROWS) | draw(_ENTRY_ROWS[stage])
    if stage in COOLING:
        return row
    row |= {"accuracy_at_germination": draw(points), "accuracy_at_stage_start": draw(points)}
    row |= draw(_TRAINING_ROWS) if stage in ACTIVE else {}
    if stage in BLENDED:
        row |= {"accuracy_at_blending": draw(points), "accuracy_at_blending_valid": True}
        row |= draw(_BLENDING_ROWS) if stage is Stage.BLENDING else _FULL_ROW
        row |= draw(_MEASURED_ROWS)
    return row


_BLENDING_ROWS = st.sampled_from(_RESTING_ROWS) | st.sampled_from(_ramp_rows())


@st.composite
def slot_states(
    draw: st.DrawFn,
    max_envs: int = 3,
    max_slots: int = 3,
    *,
    min_envs: int = 1,
    min_slots: int = 1,
    stages: Sequence[Stage] = STAGES,
) -> Slots:
    """Draw a few envs with a few slots, each slot reachable by itself.

    Args:
        max_envs, max_slots, min_envs, min_slots: bounds of E and S.
        stages: of the slots.

    Returns: a strategy of `Slots` [E], leaves [E, S].

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.slot_states())
        ... def test_only_blended_seeds_have_alpha(slots):
        ...     assert ((slots.alpha == 0) | mg.rules.blended(slots.stage)).all()
        >>> test_only_blended_seeds_have_alpha()
    """
    envs = draw(st.integers(min_envs, max_envs))
    count = draw(st.integers(min_slots, max_slots))
    row = st.lists(slot_rows(stages), min_size=count, max_size=count)
    return make_slots(draw(st.lists(row, min_size=envs, max_size=envs)))


@st.composite
def limits(draw: st.DrawFn, slots: Slots) -> Limits:
    """Draw limits for slots, at least one of them enabled.

    Shapes: slots [E], leaves [E, S] -> `Limits` of S slots.

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> from morphogen.testing.builders import scenes
        >>> slots = scenes.make_slots([[{}, {}]])  # one env, two empty slots
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.limits(slots))
        ... def test_waiting_is_legal_on_every_enabled_slot(limits):
        ...     assert mg.rules.legal(slots, limits)[0, mg.Op.WAIT].tolist() == list(limits.enabled)
        >>> test_waiting_is_legal_on_every_enabled_slot()
    """
    count = slots.stage.shape[1]
    return Limits(
        enabled=tuple(draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))),
        max_seeds=draw(st.integers(0, count + 1)),
        min_prune_age=draw(st.integers(0, 8)),
        auto_forward=tuple(
            sorted(draw(st.sets(st.sampled_from([gate.name for gate in AUTO_GATES]))))
        ),
        disabled_ops=tuple(sorted(draw(st.sets(st.sampled_from(OPS), max_size=3)))),
        blueprints=tuple(
            sorted(draw(st.sets(st.sampled_from([b.label for b in CNN_BLUEPRINTS]), max_size=3)))
        ),
    )


def actions(slots: Slots, low: int = -3, high: int = 14) -> st.SearchStrategy[Tensor]:
    """Draw actions, indices in range or not.

    Shapes: slots [E] -> int64 [E, 8], each in `low` .. `high`.

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> from morphogen.testing.builders import scenes
        >>> slots = scenes.make_slots([[{}, {}]])  # one env, two empty slots
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.actions(slots))
        ... def test_invalid_requests_become_wait(action):
        ...     spec = mg.rules.decode(action, slots, mg.Limits((True, True)))
        ...     assert (spec.valid | (spec.op == mg.Op.WAIT)).all()
        >>> test_invalid_requests_become_wait()
    """
    envs = slots.stage.shape[0]
    row = st.lists(st.integers(low, high), min_size=len(Head), max_size=len(Head))
    return st.lists(row, min_size=envs, max_size=envs).map(
        lambda rows: torch.tensor(rows, dtype=torch.int64, device="cpu")
    )
