"""Inputs of reward rules from single fields: made-up steps, for checks, examples and tests."""

from collections.abc import Mapping
from typing import Any

import torch

from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

Fields = Mapping[str, bool | int | float]


def _fields(words: str, value: float) -> dict[str, float]:
    return dict.fromkeys(words.split(), value)


# Neutral value of every leaf, in its kind: all measured, no change, empty slots.  Reals have the
# dtype of the rule.
INPUT_FIELDS: Fields = {
    **_fields("horizon rolled_back op_executed", False),
    **_fields("committed_valid clean_valid loss_valid uncommitted_valid", True),
    **_fields("op fossil_params live_params", 0),
    "epoch": 1,
    "host_params": 1000,
    **_fields("committed_acc clean_improvement val_loss uncommitted_improvement", 0.0),
    **_fields("val_acc stable_val_acc next_val_acc", 0.0),
    "param_price": 0.1,
    "baseline_loss": 2.3,
    "target_loss": 0.3,
}
SLOT_FIELDS: Fields = {
    **_fields("contribution_valid next_contribution_valid", False),
    **_fields("stage next_stage", int(Stage.DORMANT)),
    **_fields("op params age previous_stage epochs_in_stage previous_epochs_in_stage", 0),
    **_fields("contribution next_contribution interaction_sum alpha", 0.0),
    **_fields("accuracy_at_germination accuracy_at_stage_start", 0.0),
}
_DTYPES: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64}


def _fill_fields(
    neutral: Fields, fields: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> dict[str, Any]:
    """Expand fields to tensors of a shape; all others are neutral."""
    return {
        name: torch.as_tensor(
            value, dtype=_DTYPES.get(type(neutral.get(name)), dtype), device="cpu"
        )
        .expand(shape)
        .clone()
        for name, value in {**neutral, **fields}.items()
    }


def make_slot_inputs(
    envs: int = 1, slots: int = 3, *, dtype: torch.dtype = torch.float64, **fields: Any
) -> SlotInputs:
    """Build slot inputs; a number is expanded to all slots, a row to all envs.  Default: empty
    slots.
    """
    leaves = _fill_fields(SLOT_FIELDS, fields, (envs, slots), dtype)
    return SlotInputs(**leaves, batch_size=[envs])


def make_reward_inputs(
    envs: int = 1,
    *,
    dtype: torch.dtype = torch.float64,
    slots: SlotInputs | None = None,
    interaction: Any = 0.0,
    **fields: Any,
) -> RewardInputs:
    """Build inputs of a reward rule in one step, for examples and tests.

    Args:
        envs: E.
        dtype: of real numbers.
        slots, interaction: default: three empty slots.
        fields: of `RewardInputs`; a number is expanded to all envs, a row holds one for each.
            Default: measured zeros, price 0.1.

    Returns: RewardInputs [E].

    Example:
        >>> import morphogen as mg
        >>> inputs = mg.rules.make_reward_inputs(2, committed_acc=[66.0, 58.0], horizon=True)
        >>> inputs.committed_acc.tolist(), inputs.horizon.tolist(), inputs.slots.stage.shape
        ([66.0, 58.0], [True, True], torch.Size([2, 3]))
    """
    slots = make_slot_inputs(envs, dtype=dtype) if slots is None else slots
    pairs = (envs, slots.stage.shape[1], slots.stage.shape[1])
    leaves = _fill_fields(INPUT_FIELDS, fields, (envs,), dtype)
    leaves["interaction"] = torch.as_tensor(interaction, dtype=dtype, device="cpu").expand(pairs)
    inputs: Any = RewardInputs(**leaves, slots=slots, batch_size=[envs])
    return inputs.clone()


def example_steps() -> list[RewardInputs]:
    """Build consecutive steps of three envs, in float32: growth, a rollback of the second, which
    measures nothing, and the horizon.
    """
    grown = {
        "op": [int(Op.WAIT), int(Op.PRUNE), int(Op.FOSSILIZE)],
        "op_executed": True,
        "committed_acc": [50.0, 55.0, 60.0],
        "clean_improvement": [0.0, -2.0, 8.0],
        "val_loss": [2.5, 1.2, 0.2],
        "val_acc": 55.0,
        "next_val_acc": 58.0,
        "fossil_params": [0, 0, 2000],
        "live_params": [0, 1000, 3000],
    }
    lost = {**grown, "rolled_back": [False, True, False], "clean_valid": [True, False, True]}
    steps: list[dict[str, Any]] = [{}, grown, lost, {**grown, "horizon": True}]
    return [
        make_reward_inputs(3, dtype=torch.float32, epoch=1 + t, **fields)
        for t, fields in enumerate(steps)
    ]
