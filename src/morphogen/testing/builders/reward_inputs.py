"""Rules played over consecutive steps, and inputs whose invalid values are spoiled.

`play_rule` calls a rule once per step with the ledger of the previous step.

    from morphogen.rules.rewards.table import build_rule
    from morphogen.rules.rewards.example_inputs import make_reward_inputs, make_slot_inputs
    from morphogen.testing.builders.reward_inputs import play_rule
    from morphogen.config.groups import RewardSpec

    rule = build_rule(RewardSpec(rule="delta"), param_budget=1000, episode_length=2, gamma=0.9)
    steps = [
        make_reward_inputs(clean_improvement=5.0),
        make_reward_inputs(horizon=True, committed_acc=60.0),
    ]
    rewards, components, ledger = play_rule(rule, steps)
    assert rewards.shape == (2, 1) and abs(rewards[0].item() - 0.9 * 0.05) < 1e-9
    fossilized = make_reward_inputs(
        slots=make_slot_inputs(op=[[4, 0, 0]], stage=[[5, 1, 1]])
    )  # three slots
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.measure import RewardInputs

# Values that are invalid without their flag: flag -> values.
OPTIONAL_INPUTS: dict[str, tuple[str, ...]] = {
    "committed_valid": ("committed_acc",),
    "clean_valid": ("clean_improvement",),
    "loss_valid": ("val_loss",),
    "uncommitted_valid": ("val_acc", "stable_val_acc", "uncommitted_improvement"),
}
OPTIONAL_SLOT_INPUTS = {f"{name}_valid": (name,) for name in ("contribution", "next_contribution")}


def replace_invalid(reward_inputs: RewardInputs, wrong: float) -> RewardInputs:
    """Replace every invalid value, which a rule must not read."""
    slots = _spoil(reward_inputs.slots, OPTIONAL_SLOT_INPUTS, wrong)
    return _spoil(reward_inputs, OPTIONAL_INPUTS, wrong).replace(slots=slots)


def _spoil(part: Any, optional: Mapping[str, tuple[str, ...]], wrong: float) -> Any:
    pairs = ((flag, name) for flag, names in optional.items() for name in names)
    return part.replace({name: part.get(name).where(part.get(flag), wrong) for flag, name in pairs})


def play_rule(
    rule: Any, steps: Sequence[RewardInputs]
) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
    """Play consecutive steps from a fresh ledger -> rewards [T, E], components {name: [T, E]}, last
    ledger.
    """
    ledger = rule.init(*steps[0].slots.stage.shape)
    rewards = []
    parts = []
    for step in steps:
        reward, amounts, ledger = rule(step, ledger)
        rewards.append(reward)
        parts.append(amounts)
    named = {name: torch.stack([amounts[name] for amounts in parts]) for name in rule.components}
    return torch.stack(rewards), named, ledger
