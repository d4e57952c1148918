"""Inputs of reward rules from single fields: made-up steps, for checks, examples and tests."""

from collections.abc import Mapping
from typing import Any

import torch

from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

Kinds = Mapping[str, torch.dtype | None]  # leaf -> dtype; None: the dtype of reals of the rule


def _kinds(flags: str, counts: str, reals: str) -> Kinds:
    kinds = {torch.bool: flags, torch.int64: counts, None: reals}
    return {name: kind for kind, names in kinds.items() for name in names.split()}


_FLAGS = "committed_valid clean_valid loss_valid uncommitted_valid"
INPUT_KINDS = _kinds(
    f"horizon rolled_back op_executed {_FLAGS}",
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
# Neutral fields, where they are not 0: all measured, no change, empty slots.
NEUTRAL_FIELDS: dict[str, float] = {
    **dict.fromkeys(_FLAGS.split(), True),
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
    leaves = _fill_fields(INPUT_KINDS, fields, (envs,), dtype)
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
