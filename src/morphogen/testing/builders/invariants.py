"""Invariants of the slots of every reachable state.

Check the slots after each epoch of your own steps.

    import torch
    from morphogen.testing.builders import invariants, scenes, synthetic_epoch
    now = synthetic_epoch.begin_episode(scenes.make_slots([[{}, {}]]))
    for heads in ([1, 0, 1, 0, 1, 2, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0]):  # GERMINATE, ADVANCE
        loss, accuracy = torch.tensor([1.0]), torch.full((1, 4), 50.0)
        measured = synthetic_epoch.SyntheticMeasurements(loss=loss, coalition_accuracy=accuracy)
        now = synthetic_epoch.run_epoch(now, torch.tensor([heads]), measured).after
        assert invariants.broken_invariants(now.slots) == []
    half = scenes.make_slot(stage=5, age=9, blueprint=1, epochs_in_stage=1, alpha=0.5)
    assert invariants.broken_invariants(half) == ["held at alpha 1"]
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from morphogen.state.env import Slots
from morphogen.testing.builders.scenes import SLOT_LEAVES
from morphogen.vocab.stage import BLENDED, COOLING, AlphaMode, Stage

_COUNTERS = ("epochs_in_stage", "previous_epochs_in_stage", "age", "alpha_steps", "alpha_done", "since_measured")
_ZERO_UNLESS = {  # flag -> values that are 0 without it
    "gradient_valid": ("gradient_norm", "gradient_health", "vanishing", "exploding"),
    "gradient_ratio_valid": ("gradient_ratio",),
    "contribution_valid": ("contribution", "velocity_valid", "since_measured"),
    "velocity_valid": ("velocity",),
    "interaction_valid": ("interaction_sum", "boost_received"),
    "accuracy_at_blending_valid": ("accuracy_at_blending",),
}


def broken_invariants(slots: Slots) -> list[str]:
    """List the invariants that some slot breaks at the start of a step, by name."""
    return [name for name, holds in _invariants(slots) if not bool(holds.all())]


def _invariants(slots: Slots) -> Iterator[tuple[str, Tensor]]:
    """Yield name and bool [E, S] of every invariant."""
    stage, alpha, moving = slots.stage, slots.alpha, slots.alpha_mode != int(AlphaMode.HOLD)
    blends, held = stage == int(Stage.BLENDING), (stage == int(Stage.HOLDING)) | (stage == int(Stage.FOSSILIZED))
    empty, cools = stage == int(Stage.DORMANT), _in_stages(stage, COOLING)
    yield "a known stage", (stage >= int(Stage.DORMANT)) & (stage <= int(Stage.RESETTING))
    yield "counters from 0 on", torch.stack([getattr(slots, name) >= 0 for name in _COUNTERS])
    yield "alpha in 0 .. 1", (alpha >= 0) & (alpha <= 1)
    yield "alpha 0 where nothing is blended", (alpha == 0) | blends | held
    yield "held at alpha 1", (alpha == 1) | ~held
    yield "alpha moves in BLENDING only", blends | ~moving
    yield "ramps no longer than they are", slots.alpha_done <= slots.alpha_steps
    yield "an unfinished ramp moves", moving | (slots.alpha_done == slots.alpha_steps) | ~blends
    yield "a blueprint iff not empty", (slots.blueprint == SLOT_LEAVES["blueprint"].empty) == empty
    yield "an epoch in its stage iff not empty", (slots.epochs_in_stage >= 1) != empty
    yield "no younger than in its stage", (slots.age >= slots.epochs_in_stage) | cools | empty
    for name, leaf in SLOT_LEAVES.items():
        yield f"empty slots with an empty {name}", (getattr(slots, name) == leaf.empty) | ~empty
    for flag, names in _ZERO_UNLESS.items():
        for name in names:
            yield f"{name} 0 unless {flag}", (getattr(slots, name) == 0) | getattr(slots, flag)
    yield "contributions of blended seeds only", _in_stages(stage, BLENDED) | ~slots.contribution_valid


def _in_stages(stage: Tensor, stages: tuple[Stage, ...]) -> Tensor:
    return torch.stack([stage == int(member) for member in stages]).any(0)
