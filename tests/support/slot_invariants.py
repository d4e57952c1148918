"""Invariants of every slot that a run can reach."""

import torch

from morphogen.state.env import Slots
from morphogen.testing.builders.scenes import SLOT_LEAVES
from morphogen.vocab.stage import COOLING, AlphaMode, Stage

_COUNTERS = (
    "epochs_in_stage",
    "previous_epochs_in_stage",
    "age",
    "alpha_steps",
    "alpha_done",
    "since_measured",
)
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
    stage = slots.stage
    alpha = slots.alpha
    moving = slots.alpha_mode != int(AlphaMode.HOLD)
    blends = stage == int(Stage.BLENDING)
    held = (stage == int(Stage.HOLDING)) | (stage == int(Stage.FOSSILIZED))
    empty = stage == int(Stage.DORMANT)
    cools = torch.isin(stage, torch.tensor(COOLING, device="cpu"))
    invariants = {  # name -> bool [E, S]
        "a known stage": (stage >= int(Stage.DORMANT)) & (stage <= int(Stage.RESETTING)),
        "counters from 0 on": torch.stack([getattr(slots, name) >= 0 for name in _COUNTERS]),
        "alpha in 0 .. 1": (alpha >= 0) & (alpha <= 1),
        "alpha 0 where nothing is blended": (alpha == 0) | blends | held,
        "held at alpha 1": (alpha == 1) | ~held,
        "alpha moves in BLENDING only": blends | ~moving,
        "ramps no longer than they are": slots.alpha_done <= slots.alpha_steps,
        "an unfinished ramp moves": moving | (slots.alpha_done == slots.alpha_steps) | ~blends,
        "a blueprint iff not empty": (slots.blueprint == SLOT_LEAVES["blueprint"].empty) == empty,
        "an epoch in its stage iff not empty": (slots.epochs_in_stage >= 1) != empty,
        "no younger than in its stage": (slots.age >= slots.epochs_in_stage) | cools | empty,
        "contributions of blended seeds only": blends | held | ~slots.contribution_valid,
    }
    for name, leaf in SLOT_LEAVES.items():
        invariants[f"empty slots with an empty {name}"] = (
            getattr(slots, name) == leaf.empty
        ) | ~empty
    for flag, name in ((flag, name) for flag, names in _ZERO_UNLESS.items() for name in names):
        invariants[f"{name} 0 unless {flag}"] = (getattr(slots, name) == 0) | getattr(slots, flag)
    return [name for name, holds in invariants.items() if not bool(holds.all())]
