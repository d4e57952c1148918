"""Lifecycle of one slot: transitions, curves of alpha, ticks."""

import math
from collections.abc import Mapping

DORMANT, GERMINATED, TRAINING, BLENDING, HOLDING, FOSSILIZED, PRUNED, EMBARGOED, RESETTING = range(1, 10)
NEXT_STAGES = {
    DORMANT: (GERMINATED,),
    GERMINATED: (TRAINING, PRUNED),
    TRAINING: (BLENDING, PRUNED),
    BLENDING: (HOLDING, PRUNED),
    HOLDING: (FOSSILIZED, BLENDING, PRUNED),
    FOSSILIZED: (),
    PRUNED: (EMBARGOED,),
    EMBARGOED: (RESETTING,),
    RESETTING: (DORMANT,),
}
LINEAR, COSINE, SIGMOID = 1, 2, 3
HOLD = 0  # alpha mode
Number = float | int | bool


def can_transition(stage: int, to: int) -> bool:
    """Return True if a stage may become another stage; staying is no move."""
    return to in NEXT_STAGES.get(stage, ())


def curve(t: float, shape: int = LINEAR, steepness: float = 12.0) -> float:
    """Progress at the share t of a ramp: linear, cosine, or the logistic function scaled to the unit square."""
    if shape == COSINE:
        return (1 - math.cos(math.pi * t)) / 2
    if shape == SIGMOID:
        low, high = _logistic(-steepness / 2), _logistic(steepness / 2)
        return (_logistic(steepness * (t - 0.5)) - low) / (high - low)
    return t


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def ramp(start: float, target: float, ticks: int, shape: int = LINEAR, steepness: float = 12.0) -> list[float]:
    """Alpha after each tick of a ramp; the last alpha is the target exactly."""
    along = [start + (target - start) * curve(t / ticks, shape, steepness) for t in range(1, ticks)]
    return [*along, target] if ticks else []


def tick(slot: Mapping[str, Number], *, embargo: int) -> dict[str, Number]:
    """Return the leaves of a slot that one tick changes, without auto-forward."""
    stage, epochs = slot["stage"], slot["epochs_in_stage"]
    if stage == RESETTING and epochs >= 1:
        return {"stage": DORMANT}
    if stage == PRUNED and epochs >= 1:
        return _stage_entry(slot, EMBARGOED)
    if stage == EMBARGOED and epochs >= embargo:
        return _stage_entry(slot, RESETTING)
    if stage != BLENDING or slot["alpha_mode"] == HOLD:
        faded = stage == BLENDING and slot["alpha_target"] == 0
        return {**_stage_entry(slot, PRUNED), "alpha": 0.0} if faded else {}
    return _tick_ramp(slot)


def _tick_ramp(slot: Mapping[str, Number]) -> dict[str, Number]:
    """Advance the ramp by one tick; a ramp to 0 ends with the removal of the seed."""
    done, ticks = int(slot["alpha_done"]) + 1, int(slot["alpha_steps"])
    path = ramp(slot["alpha_start"], slot["alpha_target"], ticks, int(slot["alpha_curve"]), slot["alpha_steepness"])
    if done < ticks:
        return {"alpha": path[done - 1], "alpha_done": done}
    if slot["alpha_target"] == 0:
        return {**_stage_entry(slot, PRUNED), "alpha": 0.0}
    return {"alpha": slot["alpha_target"], "alpha_done": done, "alpha_mode": HOLD}


def _stage_entry(slot: Mapping[str, Number], stage: int) -> dict[str, Number]:
    return {
        "stage": stage,
        "previous_stage": slot["stage"],
        "epochs_in_stage": 0,
        "previous_epochs_in_stage": slot["epochs_in_stage"],
    }
