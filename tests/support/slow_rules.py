"""Legality, decoding and rewards written by hand, one cell at a time, without the tables of the
package.

Codes are plain integers, as in the state; the comments name them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

WAIT, GERMINATE, SET_ALPHA_TARGET, PRUNE, FOSSILIZE, ADVANCE = range(6)
OPS = ("WAIT", "GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE")
DORMANT, GERMINATED, TRAINING, BLENDING, HOLDING, FOSSILIZED, PRUNED, EMBARGOED, RESETTING = range(
    1, 10
)
# gate before the next stage
GATE_BEFORE_NEXT = {GERMINATED: "TRAIN", TRAINING: "BLEND", BLENDING: "HOLD"}
HOLD = 0  # alpha mode
# Columns of an action: 0 op, 1 slot, 2 blueprint, 3 style, 4 tempo, 5 target, 6 speed, 7 curve.
# Columns per op:
COLUMNS_READ = {0: (), 1: (1, 2, 3, 4, 5), 2: (1, 3, 5, 6, 7), 3: (1, 6, 7), 4: (1,), 5: (1,)}
VALUE_COUNTS = {2: 13, 3: 4, 4: 3, 5: 3, 6: 4, 7: 5}
LINEAR, COSINE, SIGMOID = range(1, 4)
ADD, MULTIPLY, GATE = range(1, 4)
STYLES = ((LINEAR, ADD), (LINEAR, MULTIPLY), (SIGMOID, ADD), (LINEAR, GATE))
CURVES = ((LINEAR, 12.0), (COSINE, 12.0), (SIGMOID, 6.0), (SIGMOID, 12.0), (SIGMOID, 24.0))


class SlotCell(NamedTuple):
    """Fields of a slot that legality reads."""

    stage: int
    age: int
    mode: int


def slot_cells(slots: Any) -> list[list[SlotCell]]:
    """Return the cells of every env of a `Slots`."""
    columns = (slots.stage.tolist(), slots.age.tolist(), slots.alpha_mode.tolist())
    return [
        [SlotCell(*leaves) for leaves in zip(*rows, strict=True)]
        for rows in zip(*columns, strict=True)
    ]


def legality(env: Sequence[SlotCell], limits: Any) -> list[list[bool]]:
    """Legality of every op on every slot.  `limits`: any object with the fields of `Limits`.
    -> [6][S].
    """
    return [
        [
            on and name not in limits.disabled_ops and not _stage_reason(op, slot, env, limits)
            for slot, on in enumerate(limits.enabled)
        ]
        for op, name in enumerate(OPS)
    ]


def decode(action: Sequence[int], env: Sequence[SlotCell], limits: Any) -> dict[str, Any]:
    """Return the fields of the `ActionSpec` of one env."""
    requested = min(max(action[0], 0), 5)
    reason = _invalid_reason(action, env, limits)
    op = requested if reason == 0 else WAIT
    used = {column: action[column] for column in COLUMNS_READ[op]}
    shape, steepness = (
        CURVES[used[7]] if 7 in used else (STYLES[used[3]][0] if op == GERMINATE else 0, 12.0)
    )
    return {
        "requested_op": requested,
        "op": op,
        "slot": used.get(1, 0),
        "target": [1 in used and slot == used[1] for slot in range(len(env))],
        "blueprint": used.get(2, -1),
        "algorithm": STYLES[used[3]][1] if 3 in used else 0,
        "tempo": (3, 5, 8)[used[4]] if 4 in used else 0,
        "alpha_target": (0.5, 0.7, 1.0)[used[5]] if 5 in used else 0.0,
        "alpha_steps": (0, 3, 5, 8)[used[6]] if 6 in used else 0,
        "valid": reason == 0,
        "reason": reason,
        "curve": shape,
        "steepness": steepness,
    }


def _stage_reason(op: int, slot: int, env: Sequence[SlotCell], limits: Any) -> int:
    """Return the smallest reason by which the stages forbid an op; 0: legal."""
    stage, age, mode = env[slot]
    if op == WAIT:
        return 0
    if op == ADVANCE and GATE_BEFORE_NEXT.get(stage) in limits.auto_forward:
        return 21
    stages = {
        GERMINATE: (DORMANT,),
        SET_ALPHA_TARGET: (BLENDING, HOLDING),
        PRUNE: (GERMINATED, TRAINING, BLENDING, HOLDING),
        FOSSILIZE: (HOLDING,),
        ADVANCE: (GERMINATED, TRAINING, BLENDING),
    }
    if stage not in stages[op]:
        return 23
    if op == GERMINATE:
        return _occupancy_reason(env, limits)
    if op == PRUNE and age < limits.min_prune_age:
        return 26
    return 27 if op in (PRUNE, SET_ALPHA_TARGET) and mode != HOLD else 0


def _occupancy_reason(env: Sequence[SlotCell], limits: Any) -> int:
    """Return the reason against a further seed: a seed develops, a slot cools down, or the limit is
    reached.
    """
    busy = (GERMINATED, TRAINING, PRUNED, EMBARGOED, RESETTING)
    if any(on and cell.stage in busy for cell, on in zip(env, limits.enabled, strict=True)):
        return 24
    seeds = sum(GERMINATED <= cell.stage <= FOSSILIZED for cell in env)
    return 25 if 0 < limits.max_seeds <= seeds else 0


def _invalid_reason(action: Sequence[int], env: Sequence[SlotCell], limits: Any) -> int:
    """Return the smallest reason by which an action is invalid; 0: valid."""
    op = action[0]
    if not 0 <= op <= 5:
        return 20
    sizes = {1: len(env), **VALUE_COUNTS}
    if any(not 0 <= action[column] < sizes[column] for column in COLUMNS_READ[op]):
        return 20
    if op == WAIT:
        return 0
    slot = action[1]
    objection = _stage_reason(op, slot, env, limits)
    if OPS[op] in limits.disabled_ops or objection == 21:
        return 21
    if not limits.enabled[slot]:
        return 22
    if objection:
        return objection
    return 28 if op == GERMINATE and action[2] not in _allowed_blueprints(limits) else 0


def _allowed_blueprints(limits: Any) -> list[int]:
    names = limits.blueprints or limits.kinds
    return [code for code, name in enumerate(limits.kinds) if code and name and name in names]


def shaping(potentials: Sequence[float | None], ended: Sequence[bool], gamma: float) -> list[float]:
    """Potential-based shaping of one env: `gamma phi' - phi`, where phi is 0 at both ends of a
    segment.

    `potentials`: after each step; None: not measured, the last potential is carried.
    """
    amounts = []
    phi = 0.0
    for potential, end in zip(potentials, ended, strict=True):
        after = 0.0 if end else phi if potential is None else potential
        amounts.append(gamma * after - phi)
        phi = after
    return amounts


def core_rewards(
    rule: str,
    steps: Sequence[Mapping[str, Any]],
    *,
    gamma: float,
    budget: int,
    length: int,
    **params: float,
) -> list[float]:
    """Rewards of one env under a core rule; a step has the fields of `RewardInputs` as plain
    numbers.

    `rule`: sparse, delta, value, rent, loss or anytime.
    `params`: potential_scale (1), governor_penalty (1), op_cost (0).
    """
    scale = params.get("potential_scale", 1.0)
    penalty = params.get("governor_penalty", 1.0)
    potentials = [_potential(rule, scale, step, budget) for step in steps]
    shaped = shaping(potentials, [step["horizon"] or step["rolled_back"] for step in steps], gamma)
    out = []
    for step, extra in zip(steps, shaped, strict=True):
        if step["rolled_back"]:
            out.append(-penalty + extra)
            continue
        fee = (
            0.0
            if rule == "sparse" or step["op"] == 0 or not step["op_executed"]
            else params.get("op_cost", 0.0)
        )
        rents = step["param_price"] * step["live_params"] / (budget * length)
        upkeep = rents if rule in ("rent", "anytime") else 0.0
        if rule == "anytime":
            out.append(step["next_val_acc"] / (100 * length) - fee - upkeep)
        else:
            out.append(
                (_value(rule, step, budget) if step["horizon"] else 0.0) + extra - fee - upkeep
            )
    return out


def _value(rule: str, step: Mapping[str, Any], budget: int) -> float:
    if not step["committed_valid"]:
        return 0.0
    price = 0.0 if rule == "rent" else step["param_price"] * step["fossil_params"] / budget
    return max(-1.0, min(1.0, step["committed_acc"] / 100 - price))


def _potential(rule: str, scale: float, step: Mapping[str, Any], budget: int) -> float | None:
    if rule in ("sparse", "anytime"):
        return 0.0
    if rule == "value":
        return scale * _value(rule, step, budget) if step["committed_valid"] else None
    if rule == "loss":
        if not step["loss_valid"]:
            return None
        share = (step["baseline_loss"] - step["val_loss"]) / (
            step["baseline_loss"] - step["target_loss"]
        )
        return scale * max(0.0, min(1.0, share))
    return scale * step["clean_improvement"] / 100 if step["clean_valid"] else None


def discounted_return(rewards: Tensor, gamma: float) -> Tensor:
    """Discounted sum over the first axis, step by step.  [T, ...] -> [...]."""
    return sum(
        (gamma**t * reward for t, reward in enumerate(rewards)), torch.zeros_like(rewards[0])
    )
