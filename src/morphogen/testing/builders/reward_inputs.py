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
from morphogen.vocab.stage import Stage

Kinds = Mapping[str, torch.dtype | None]  # leaf -> dtype; None: the dtype of reals of the rule


def _kinds(flags: str, counts: str, reals: str) -> Kinds:
    kinds = {torch.bool: flags, torch.int64: counts, None: reals}
    return {name: kind for kind, names in kinds.items() for name in names.split()}


INPUT_KINDS = _kinds(
    "horizon rolled_back op_executed committed_valid clean_valid loss_valid uncommitted_valid",
    "op epoch host_params fossil_params live_params",
    "committed_acc clean_improvement val_loss uncommitted_improvement val_acc stable_val_acc "
    "next_val_acc param_price baseline_loss target_loss",
)
SLOT_INPUT_KINDS = _kinds(
    "contribution_valid next_contribution_valid",
    "stage next_stage op params age previous_stage epochs_in_stage previous_epochs_in_stage",
    "contribution next_contribution interaction_sum alpha accuracy_at_germination "
    "accuracy_at_stage_start",
)
# Values that are invalid without their flag: flag -> values.
OPTIONAL_INPUTS: dict[str, tuple[str, ...]] = {
    "committed_valid": ("committed_acc",),
    "clean_valid": ("clean_improvement",),
    "loss_valid": ("val_loss",),
    "uncommitted_valid": ("val_acc", "stable_val_acc", "uncommitted_improvement"),
}
OPTIONAL_SLOT_INPUTS = {f"{name}_valid": (name,) for name in ("contribution", "next_contribution")}
# Neutral fields, where they are not 0: all measured, no change, empty slots.
NEUTRAL_FIELDS: dict[str, float] = {
    **dict.fromkeys(OPTIONAL_INPUTS, True),
    **dict.fromkeys(("stage", "next_stage"), int(Stage.DORMANT)),
    "epoch": 1,
    "host_params": 1000,
    "param_price": 0.1,
    "baseline_loss": 2.3,
    "target_loss": 0.3,
}


def _fill_fields(
    kinds: Kinds, fields: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> dict[str, Any]:
    """Expand fields to tensors of a shape; all others are neutral."""
    if unknown := sorted(fields.keys() - kinds.keys()):
        raise TypeError(f"fields: expected some of {', '.join(kinds)}, got {', '.join(unknown)}")
    values: dict[str, Any] = {**NEUTRAL_FIELDS, **fields}
    return {
        name: torch.as_tensor(values.get(name, 0), dtype=kind or dtype, device="cpu")
        .expand(shape)
        .clone()
        for name, kind in kinds.items()
    }


def make_slot_inputs(
    envs: int = 1, slots: int = 3, *, dtype: torch.dtype = torch.float64, **fields: Any
) -> SlotInputs:
    """Build slot inputs; a number is expanded to all slots, a row to all envs.  Default: empty
    slots.
    """
    leaves = _fill_fields(SLOT_INPUT_KINDS, fields, (envs, slots), dtype)
    return SlotInputs(**leaves, batch_size=[envs])


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
    pairs = (envs, slots.stage.shape[1], slots.stage.shape[1])
    leaves = _fill_fields(INPUT_KINDS, fields, (envs,), dtype)
    leaves["interaction"] = torch.as_tensor(interaction, dtype=dtype, device="cpu").expand(pairs)
    return RewardInputs(**leaves, slots=slots, batch_size=[envs]).clone()


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
