"""Reward inputs drawn directly: every field in its range, invalid values 0."""

import itertools
from typing import Any

import torch
from hypothesis import strategies as st

from morphogen.rules.legality import ALLOWED_STAGES
from morphogen.state.measure import RewardInputs
from morphogen.testing.builders.reward_inputs import (
    OPTIONAL_INPUTS,
    make_reward_inputs,
    make_slot_inputs,
)
from morphogen.testing.builders.scenes import Row
from morphogen.testing.strategies.slots import points, slot_rows
from morphogen.testing.strategies.states import losses
from morphogen.vocab.action import Op
from morphogen.vocab.stage import OCCUPIED, TRANSITIONS, Stage

PARAMS = (100, 0, 1, 2336, 60_000)
_SHARED_FIELDS = (
    *(
        "stage",
        "previous_stage",
        "epochs_in_stage",
        "previous_epochs_in_stage",
        "age",
        "alpha",
        "contribution",
    ),
    *(
        "contribution_valid",
        "accuracy_at_germination",
        "accuracy_at_stage_start",
        "interaction_sum",
    ),
)


@st.composite
def _slot_row_lists(draw: st.DrawFn, count: int, op: Op | None) -> list[Row]:
    """Draw the slots of one env; an executed op addresses a valid slot."""
    rows: list[Row] = [draw(slot_rows()) for _ in range(count)]
    place = draw(st.integers(0, count - 1))
    if op is not None and op is not Op.WAIT:
        rows[place] = draw(slot_rows(ALLOWED_STAGES[op]))
    out: list[Row] = []
    for slot, row in enumerate(rows):
        stage = Stage(int(row["stage"]))
        cell: Row = {name: row[name] for name in _SHARED_FIELDS if name in row}
        cell["op"] = int(op) if op is not None and slot == place else int(Op.WAIT)
        cell["params"] = draw(st.sampled_from(PARAMS[2:])) if stage in OCCUPIED else 0
        cell["next_stage"] = int(draw(st.sampled_from((stage, *TRANSITIONS[stage]))))
        if cell["next_stage"] in OCCUPIED and draw(st.booleans()):
            cell |= {"next_contribution_valid": True, "next_contribution": draw(points) - 50.0}
        out.append(cell)
    return out


@st.composite
def _env_fields(draw: st.DrawFn, count: int, rollbacks: bool) -> dict[str, Any]:
    """Draw the fields of one env, and its slots under `slots`."""
    op = draw(st.sampled_from(Op))
    executed = draw(st.integers(0, 3)) > 0  # most ops take effect
    slots = draw(_slot_row_lists(count, op if executed else None))
    fossils = [row["params"] for row in slots if row["next_stage"] == Stage.FOSSILIZED]
    live = [row["params"] for row in slots if row["next_stage"] in OCCUPIED]
    row: dict[str, Any] = {"op": int(op), "op_executed": executed, "slots": slots}
    row |= {
        "rolled_back": rollbacks and draw(st.booleans()),
        "fossil_params": sum(fossils),
        "live_params": sum(live),
    }
    row |= {
        "param_price": draw(st.sampled_from((0.1, 0.0, 1.0))),
        "host_params": draw(st.sampled_from((1000, 1, 90))),
    }
    row |= {
        "committed_acc": draw(points),
        "clean_improvement": draw(points) - 50.0,
        "val_loss": draw(losses),
    }
    row |= {
        "val_acc": draw(points),
        "uncommitted_improvement": draw(points) - 50.0,
        "next_val_acc": draw(points),
    }
    row["stable_val_acc"] = min(row["val_acc"], draw(points))
    known = draw(st.integers(0, 2 ** len(OPTIONAL_INPUTS) - 1))  # one bit per flag
    for place, (flag, values) in enumerate(OPTIONAL_INPUTS.items()):
        row[flag] = bool(known >> place & 1)
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
    rollbacks: bool = True,
) -> RewardInputs:
    """Draw reward inputs of a few envs in one step, real numbers in float64; invalid values are 0.

    Args:
        max_envs, min_envs, slots: bounds of E, and S.
        epoch: number of the step, from 1.
        horizon: the step is the last; None: drawn.
        rollbacks: some envs were rolled back.

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
    envs = draw(st.integers(min_envs, max_envs))
    rows = draw(st.lists(_env_fields(slots, rollbacks), min_size=envs, max_size=envs))
    last = draw(st.booleans()) if horizon is None else horizon
    names = [name for name in rows[0] if name != "slots"]
    leaves = {name: [row[name] for row in rows] for name in names}
    cells = sorted({name for row in rows for cell in row["slots"] for name in cell})
    empty = {"stage": int(Stage.DORMANT), "next_stage": int(Stage.DORMANT)}
    parts = {
        name: [[cell.get(name, empty.get(name, 0)) for cell in row["slots"]] for row in rows]
        for name in cells
    }
    pairs = _interactions(draw, envs, slots, leaves["clean_valid"])
    places = make_slot_inputs(envs, slots, dtype=torch.float64, **parts)
    return make_reward_inputs(
        envs,
        dtype=torch.float64,
        slots=places,
        interaction=pairs,
        horizon=last,
        epoch=epoch,
        **leaves,
    )


def _interactions(draw: st.DrawFn, envs: int, slots: int, measured: list[bool]) -> torch.Tensor:
    """Draw interactions [E, S, S]: symmetric, 0 on the diagonal and in unmeasured envs."""
    out = torch.zeros(envs, slots, slots, dtype=torch.float64, device="cpu")
    pairs = list(itertools.combinations(range(slots), 2))
    for e in (e for e in range(envs) if measured[e]):
        digits = draw(st.integers(0, 3 ** len(pairs) - 1))  # one digit per pair
        for place, (i, j) in enumerate(pairs):
            out[e, i, j] = out[e, j, i] = (0.0, 3.0, -2.5)[digits // 3**place % 3]
    return out


@st.composite
def reward_episodes(
    draw: st.DrawFn,
    max_envs: int = 3,
    max_steps: int = 5,
    *,
    min_envs: int = 1,
    slots: int = 3,
    last: bool = True,
    rollbacks: bool = True,
) -> list[RewardInputs]:
    """Draw reward inputs in consecutive steps of the same envs.  Only the ledger of a rule connects
    the steps.

    Args: as in `reward_inputs`; `max_steps`: bound of the number of steps; `last`: the last step is
    the horizon.

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
    envs = draw(st.integers(min_envs, max_envs))
    steps = draw(st.integers(1, max_steps))
    episode: list[RewardInputs] = []
    for t in range(steps):
        ends = last and t == steps - 1
        drawn = reward_inputs(
            envs, min_envs=envs, slots=slots, epoch=t + 1, horizon=ends, rollbacks=rollbacks
        )
        episode.append(draw(drawn))
    return episode
