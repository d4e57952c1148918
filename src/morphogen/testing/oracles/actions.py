"""Legality and meaning of actions, one cell at a time."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

WAIT, GERMINATE, SET_ALPHA_TARGET, PRUNE, FOSSILIZE, ADVANCE = range(6)
OPS = ("WAIT", "GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE")
DORMANT, GERMINATED, TRAINING, BLENDING, HOLDING, FOSSILIZED, PRUNED, EMBARGOED, RESETTING = range(1, 10)
GATE_BEFORE_NEXT = {GERMINATED: "TRAIN", TRAINING: "BLEND", BLENDING: "HOLD"}  # gate before the next stage
HOLD = 0  # alpha mode
BLUEPRINTS = ("noop", "conv_light", "attention", "norm", "depthwise", "bottleneck", "conv_small", "conv_heavy")
BLUEPRINTS += ("lora", "lora_large", "mlp_small", "mlp", "flex_attention")
TOPOLOGIES = {"cnn": (1, 2, 3, 4, 5, 6, 7), "transformer": (2, 3, 8, 9, 10, 11, 12)}
# Columns of an action: 0 op, 1 slot, 2 blueprint, 3 style, 4 tempo, 5 target, 6 speed, 7 curve.  Columns per op:
COLUMNS_READ = {0: (), 1: (1, 2, 3, 4, 5), 2: (1, 3, 5, 6, 7), 3: (1, 6, 7), 4: (1,), 5: (1,)}
VALUE_COUNTS = {2: 13, 3: 4, 4: 3, 5: 3, 6: 4, 7: 5}
LINEAR, COSINE, SIGMOID = 1, 2, 3
ADD, MULTIPLY, GATE = 1, 2, 3
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
    return [[SlotCell(*leaves) for leaves in zip(*rows, strict=True)] for rows in zip(*columns, strict=True)]


def legal(op: int, slot: int, env: Sequence[SlotCell], limits: Any) -> bool:
    """Return True if an op may address a slot.  `limits`: any object with the fields of `Limits`."""
    return limits.enabled[slot] and OPS[op] not in limits.disabled_ops and _stage_reason(op, slot, env, limits) == 0


def legality(env: Sequence[SlotCell], limits: Any) -> list[list[bool]]:
    """Legality of every op on every slot.  -> [6][S]."""
    return [[legal(op, slot, env, limits) for slot in range(len(env))] for op in range(6)]


def decode(action: Sequence[int], env: Sequence[SlotCell], limits: Any) -> dict[str, Any]:
    """Return the fields of the `ActionSpec` of one env."""
    requested = min(max(action[0], 0), 5)
    reason = _invalid_reason(action, env, limits)
    op = requested if reason == 0 else WAIT
    used = {column: action[column] for column in COLUMNS_READ[op]}
    fields = {
        "requested_op": requested,
        "op": op,
        "slot": used.get(1, 0),
        "target": [1 in used and slot == used[1] for slot in range(len(env))],
        "blueprint": used.get(2, -1),
        "algorithm": STYLES[used[3]][1] if 3 in used else 0,
        "tempo": (3, 5, 8)[used[4]] if 4 in used else 0,
        "alpha_target": (0.5, 0.7, 1.0)[used[5]] if 5 in used else 0.0,
        "alpha_steps": (0, 3, 5, 8)[used[6]] if 6 in used else 0,
        "curve": STYLES[used[3]][0] if op == GERMINATE else 0,
        "steepness": 12.0,
        "valid": reason == 0,
        "reason": reason,
    }
    return fields | (dict(zip(("curve", "steepness"), CURVES[used[7]], strict=True)) if 7 in used else {})


def count_actions(env: Sequence[SlotCell], limits: Any) -> int:
    """Count the distinct complete actions by enumeration."""
    count = 1 if any(limits.enabled) else 0
    values = {column: range(size) for column, size in VALUE_COUNTS.items()} | {2: _allowed_blueprints(limits)}
    for op in range(1, 6):
        slots = [slot for slot in range(len(env)) if legal(op, slot, env, limits)]
        free = [values[column] for column in COLUMNS_READ[op] if column > 1]
        count += sum(1 for _ in itertools.product(slots, *free))
    return count


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
    """Return the reason against a further seed: a seed develops, a slot cools down, or the limit is reached."""
    for cell, on in zip(env, limits.enabled, strict=True):
        if on and cell.stage in (GERMINATED, TRAINING, PRUNED, EMBARGOED, RESETTING):
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
    return [
        code for code in TOPOLOGIES[limits.topology] if not limits.blueprints or BLUEPRINTS[code] in limits.blueprints
    ]
