"""Inputs of reward rules from single fields, and rules played over consecutive steps.

`play_rule` calls a rule once per step with the ledger of the previous step.

    from morphogen.rules.rewards.table import build_rule
    from morphogen.testing.builders.reward_inputs import (
        make_reward_inputs,
        make_slot_inputs,
        play_rule,
    )
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

from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

# Neutral fields: all measured, no change. name -> (value, dtype; None: the floating-point dtype of
# the rule)
INPUT_DEFAULTS: dict[str, tuple[float | int | bool, torch.dtype | None]] = {
    **dict.fromkeys(("horizon", "rolled_back", "op_executed"), (False, torch.bool)),
    **dict.fromkeys(
        ("committed_valid", "clean_valid", "loss_valid", "uncommitted_valid"), (True, torch.bool)
    ),
    **dict.fromkeys(("fossil_params", "live_params"), (0, torch.int64)),
    **{
        "op": (int(Op.WAIT), torch.int64),
        "epoch": (1, torch.int64),
        "host_params": (1000, torch.int64),
    },
    **dict.fromkeys(
        ("committed_acc", "clean_improvement", "val_loss", "uncommitted_improvement"), (0.0, None)
    ),
    **dict.fromkeys(("val_acc", "stable_val_acc", "next_val_acc"), (0.0, None)),
    **{"param_price": (0.1, None), "baseline_loss": (2.3, None), "target_loss": (0.3, None)},
}
# Empty slots.
SLOT_INPUT_DEFAULTS: dict[str, tuple[float | int | bool, torch.dtype | None]] = {
    **dict.fromkeys(("stage", "next_stage"), (int(Stage.DORMANT), torch.int64)),
    **{"op": (int(Op.WAIT), torch.int64), "params": (0, torch.int64), "age": (0, torch.int64)},
    **dict.fromkeys(
        ("previous_stage", "epochs_in_stage", "previous_epochs_in_stage"), (0, torch.int64)
    ),
    **dict.fromkeys(("contribution_valid", "next_contribution_valid"), (False, torch.bool)),
    **dict.fromkeys(("contribution", "next_contribution", "interaction_sum", "alpha"), (0.0, None)),
    **dict.fromkeys(("accuracy_at_germination", "accuracy_at_stage_start"), (0.0, None)),
}
# Values that are invalid without their flag: flag -> values.
OPTIONAL_INPUTS: dict[str, tuple[str, ...]] = {
    "committed_valid": ("committed_acc",),
    "clean_valid": ("clean_improvement",),
    "loss_valid": ("val_loss",),
    "uncommitted_valid": ("val_acc", "stable_val_acc", "uncommitted_improvement"),
}
OPTIONAL_SLOT_INPUTS = {f"{name}_valid": (name,) for name in ("contribution", "next_contribution")}


def fill_fields(
    defaults: Mapping, fields: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> dict[str, Any]:
    """Expand fields to tensors of a shape, with the defaults of all others."""
    unknown = fields.keys() - defaults.keys()
    if unknown:
        raise TypeError(
            f"fields: expected some of {', '.join(defaults)}, got {', '.join(sorted(unknown))}"
        )
    return {
        name: torch.as_tensor(fields.get(name, value), dtype=kind or dtype, device="cpu")
        .expand(shape)
        .clone()
        for name, (value, kind) in defaults.items()
    }


def make_slot_inputs(
    envs: int = 1, slots: int = 3, *, dtype: torch.dtype = torch.float64, **fields: Any
) -> SlotInputs:
    """Build slot inputs; a number is expanded to all slots, a row to all envs.  Default: empty
    slots.
    """
    return SlotInputs(
        **fill_fields(SLOT_INPUT_DEFAULTS, fields, (envs, slots), dtype), batch_size=[envs]
    )


def make_reward_inputs(
    envs: int = 1,
    *,
    dtype: torch.dtype = torch.float64,
    slots: SlotInputs | None = None,
    interaction: Any = 0.0,
    **fields: Any,
) -> RewardInputs:
    """Build inputs of a rule; a number is expanded to all envs.  Default: measured zeros, price
    0.1.
    """
    slots = make_slot_inputs(envs, dtype=dtype) if slots is None else slots
    places = slots.stage.shape[1]
    pairs = (
        torch.as_tensor(interaction, dtype=dtype, device="cpu").expand(envs, places, places).clone()
    )
    leaves = fill_fields(INPUT_DEFAULTS, fields, (envs,), dtype)
    return RewardInputs(**leaves, interaction=pairs, slots=slots, batch_size=[envs])


def replace_invalid(reward_inputs: RewardInputs, wrong: float) -> RewardInputs:
    """Replace every invalid value, which a rule must not read."""
    whole, slots = (
        {
            name: part.get(name).where(part.get(flag), wrong)
            for flag, names in optional.items()
            for name in names
        }
        for part, optional in (
            (reward_inputs, OPTIONAL_INPUTS),
            (reward_inputs.slots, OPTIONAL_SLOT_INPUTS),
        )
    )
    return reward_inputs.replace(**whole, slots=reward_inputs.slots.replace(**slots))


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
        reward, paid, ledger = rule(step, ledger)
        rewards.append(reward)
        parts.append(paid)
    return (
        torch.stack(rewards),
        {name: torch.stack([p[name] for p in parts]) for name in rule.components},
        ledger,
    )


def discounted_return(rewards: Tensor, gamma: float) -> Tensor:
    """Discounted sum over the first axis, step by step.  [T, ...] -> [...]."""
    return sum(
        (gamma**t * reward for t, reward in enumerate(rewards)), torch.zeros_like(rewards[0])
    )
