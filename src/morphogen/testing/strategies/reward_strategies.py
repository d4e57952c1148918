"""Reward inputs drawn directly: every field in its range, invalid values 0."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from morphogen.rules.legality import ALLOWED_STAGES
from morphogen.rules.rewards.example_inputs import (
    SLOT_FIELDS,
    make_reward_inputs,
    make_slot_inputs,
)
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.reward_inputs import OPTIONAL_INPUTS
from morphogen.testing.builders.scenes import Row
from morphogen.testing.strategies.slots import STAGES, points, slot_rows
from morphogen.testing.strategies.states import losses
from morphogen.vocab.action import Op
from morphogen.vocab.stage import OCCUPIED, TRANSITIONS, Stage

PARAMS = (1, 2336, 60_000)
gains = points.map(lambda accuracy: accuracy - 50.0)
_ENV_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(OPTIONAL_INPUTS, st.booleans()),
    **dict.fromkeys(("committed_acc", "val_acc", "stable_val_acc", "next_val_acc"), points),
    **dict.fromkeys(("clean_improvement", "uncommitted_improvement"), gains),
    "val_loss": losses,
    "param_price": st.sampled_from((0.1, 0.0, 1.0)),
    "host_params": st.sampled_from((1000, 1, 90)),
    "op": st.sampled_from(Op),
    "op_executed": st.integers(0, 3).map(bool),  # most ops take effect
}


@st.composite
def _slot_fields(draw: st.DrawFn, stages: Sequence[Stage], op: Op) -> Row:
    """Draw the fields of a slot in one of these stages, on which an op takes effect."""
    drawn = draw(slot_rows(stages))
    row: Row = {name: value for name, value in drawn.items() if name in SLOT_FIELDS}
    stage = Stage(int(row["stage"]))
    after = draw(st.sampled_from((stage, *TRANSITIONS[stage])))
    row |= {"op": int(op), "next_stage": int(after)}
    row["params"] = draw(st.sampled_from(PARAMS)) if stage in OCCUPIED else 0
    if after in OCCUPIED and draw(st.booleans()):
        row |= {"next_contribution_valid": True, "next_contribution": draw(gains)}
    return row


@st.composite
def _env_fields(draw: st.DrawFn, count: int) -> dict[str, Any]:
    """Draw the fields of one env, and its slots under `slots`."""
    row: dict[str, Any] = draw(st.fixed_dictionaries(_ENV_FIELDS))
    op = Op(row["op"])
    acts = row["op_executed"] and op is not Op.WAIT
    place = draw(st.integers(0, count - 1)) if acts else -1
    on_place = _slot_fields(ALLOWED_STAGES[op], op)
    elsewhere = _slot_fields(STAGES, Op.WAIT)
    slots = [draw(on_place if slot == place else elsewhere) for slot in range(count)]
    live = [slot for slot in slots if slot["next_stage"] in OCCUPIED]
    fossils = [slot for slot in live if slot["next_stage"] == Stage.FOSSILIZED]
    row |= {
        "slots": slots,
        "rolled_back": draw(st.booleans()),
        "fossil_params": sum(slot["params"] for slot in fossils),
        "live_params": sum(slot["params"] for slot in live),
        "stable_val_acc": min(row["val_acc"], row["stable_val_acc"]),
    }
    for flag, values in OPTIONAL_INPUTS.items():
        row |= {} if row[flag] else dict.fromkeys(values, 0.0)
    if not row["uncommitted_valid"]:  # contributions need the accuracies before the step
        for slot in slots:
            slot |= {"contribution_valid": False, "contribution": 0.0}
    return row


@st.composite
def reward_inputs(
    draw: st.DrawFn,
    max_envs: int = 3,
    *,
    min_envs: int = 1,
    slots: int = 3,
    epoch: int = 1,
    horizon: bool | None = None,
) -> RewardInputs:
    """Draw reward inputs of a few envs in one step, real numbers in float64; invalid values are 0.

    Args:
        max_envs, min_envs, slots: bounds of E, and S.
        epoch: number of the step, from 1.
        horizon: the step is the last; None: drawn.

    Returns: a strategy of `RewardInputs` [E].

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> rule = mg.rules.build_rule(
        ...     mg.RewardSpec(), param_budget=100, episode_length=8, gamma=1.0
        ... )
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.reward_inputs(slots=2))
        ... def test_components_sum_to_the_reward(inputs):
        ...     reward, parts, _ = rule(inputs, rule.init(len(inputs), 2))
        ...     assert sum(parts.values()).allclose(reward)
        >>> test_components_sum_to_the_reward()
    """
    rows = draw(st.lists(_env_fields(slots), min_size=min_envs, max_size=max_envs))
    cells = [row.pop("slots") for row in rows]
    parts: dict[str, Any] = {
        name: [[cell.get(name, neutral) for cell in env] for env in cells]
        for name, neutral in SLOT_FIELDS.items()
    }
    leaves: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return make_reward_inputs(
        len(rows),
        dtype=torch.float64,
        slots=make_slot_inputs(len(rows), slots, dtype=torch.float64, **parts),
        interaction=draw(_interactions(leaves["clean_valid"], slots)),
        horizon=draw(st.booleans()) if horizon is None else horizon,
        epoch=epoch,
        **leaves,
    )


@st.composite
def _interactions(draw: st.DrawFn, measured: list[bool], slots: int) -> Tensor:
    """Draw interactions [E, S, S]: symmetric, 0 on the diagonal and in unmeasured envs."""
    out = torch.zeros(len(measured), slots, slots, dtype=torch.float64, device="cpu")
    value = st.sampled_from((0.0, 3.0, -2.5))
    for (i, j), e in itertools.product(itertools.combinations(range(slots), 2), range(len(out))):
        out[e, i, j] = out[e, j, i] = draw(value) if measured[e] else 0.0
    return out


@st.composite
def reward_episodes(
    draw: st.DrawFn, max_envs: int = 3, max_steps: int = 5, *, slots: int = 3
) -> list[RewardInputs]:
    """Draw reward inputs in consecutive steps of the same envs, up to the horizon.  Only the ledger
    of a rule connects the steps.

    Args: as in `reward_inputs`; `max_steps`: bound of the number of steps.

    Example:
        >>> from hypothesis import given, settings
        >>> import morphogen as mg
        >>> from morphogen.testing import strategies
        >>> @settings(max_examples=5, deadline=None, database=None)
        ... @given(strategies.reward_episodes(max_steps=3))
        ... def test_the_last_step_is_the_horizon(steps):
        ...     assert [bool(step.horizon.all()) for step in steps] == [False] * (
        ...         len(steps) - 1
        ...     ) + [True]
        >>> test_the_last_step_is_the_horizon()
    """
    envs = draw(st.integers(1, max_envs))
    steps = draw(st.integers(1, max_steps))
    return [
        draw(reward_inputs(envs, min_envs=envs, slots=slots, epoch=t + 1, horizon=t == steps - 1))
        for t in range(steps)
    ]
