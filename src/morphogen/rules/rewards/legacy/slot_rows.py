"""The rows of the legacy kernels out of what a reward rule sees of an env: every slot is a row."""

import torch
from torch import Tensor

from morphogen.rules.rewards.legacy.parts import ONE_POINT
from morphogen.rules.rewards.legacy.rows import OptionalValue, SlotRows
from morphogen.rules.stages import occupied
from morphogen.state.measure import RewardInputs, SlotInputs
from morphogen.vocab.stage import Stage


def build_slot_rows(inputs: RewardInputs, accuracy: Tensor, *, episode_length: int, **fields: Tensor) -> SlotRows:
    """One row for every slot.

    Shapes: inputs [E]; accuracy [E], points, from which progress counts; `given`: fields that a rule adds, [E, S] or
    [E, 1] -> Rows, fields of slots [E, S], those of envs [E, 1].
    Promise: a field that is not given is 0.
    """
    slots, epoch = inputs.slots, inputs.epoch.unsqueeze(-1)
    known = occupied(slots.stage) & inputs.uncommitted_valid.unsqueeze(-1)
    none = torch.zeros_like(inputs.val_acc).unsqueeze(-1)
    absent = ("val_acc_delta", "effective_seed_params", "alpha_delta_sq_sum", "escrow_balance", "drip_scale")
    return SlotRows(
        op=slots.op,
        epoch=epoch,
        last=inputs.horizon.unsqueeze(-1),
        left=episode_length - epoch,
        stage=slots.stage,
        previous_stage=slots.previous_stage,
        epochs_in_stage=slots.epochs_in_stage,
        previous_epochs_in_stage=slots.previous_epochs_in_stage,
        age=slots.age,
        contribution=OptionalValue(slots.contribution, slots.contribution_valid),
        uncommitted=OptionalValue(inputs.uncommitted_improvement.unsqueeze(-1), inputs.uncommitted_valid.unsqueeze(-1)),
        progress=OptionalValue(accuracy.unsqueeze(-1) - slots.accuracy_at_germination, known),
        stage_gain=OptionalValue(inputs.val_acc.unsqueeze(-1) - slots.accuracy_at_stage_start, known),
        interaction_sum=slots.interaction_sum,
        val_acc=inputs.next_val_acc.unsqueeze(-1),
        host_params=inputs.host_params.unsqueeze(-1),
        **_seed_counts(slots),
        **{name: fields.get(name, none) for name in absent},
    )


def _seed_counts(slots: SlotInputs) -> dict[str, Tensor]:
    """Seeds and fossils before the step, and good fossils after it: int64 [E, 1] by name."""
    fossil = slots.stage == int(Stage.FOSSILIZED)
    kept = slots.next_contribution_valid & (slots.next_stage == int(Stage.FOSSILIZED))
    masks = {
        "n_active_seeds": occupied(slots.stage) & ~fossil,
        "n_fossilized": fossil,
        "n_contributing_fossilized": kept & (slots.next_contribution >= ONE_POINT),
    }
    return {name: mask.sum(-1, keepdim=True) for name, mask in masks.items()}
