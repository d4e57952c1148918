"""Rows of the legacy kernels: one row is one slot of one env at one step."""

from typing import NamedTuple

from torch import Tensor


class OptionalValue(NamedTuple):
    """An optional value; what stands where the flag is False is never read."""

    value: Tensor
    valid: Tensor  # bool


class SlotRows(NamedTuple):
    """Inputs of a kernel.  Fields broadcast against each other, so a field of an env may be [E, 1] beside [E, S].

    All real fields have one dtype, that of the result.  Without a seed every optional field is invalid.
    """

    op: Tensor  # int64, executed on this slot, else WAIT
    epoch: Tensor  # int64, from 1
    last: Tensor  # bool, the horizon
    left: Tensor  # int64, epochs after this one
    stage: Tensor  # int64, a `Stage`
    previous_stage: Tensor  # int64
    epochs_in_stage: Tensor  # int64, epochs
    previous_epochs_in_stage: Tensor  # int64
    age: Tensor  # int64
    contribution: OptionalValue  # points, leave-one-out
    uncommitted: OptionalValue  # points, all on minus only the fossilized on
    progress: OptionalValue  # points since germination
    stage_gain: OptionalValue  # points since entry into the stage
    interaction_sum: Tensor  # points
    val_acc: Tensor  # points, at the end of the step
    val_acc_delta: Tensor  # points since the reset
    effective_seed_params: Tensor  # real
    alpha_delta_sq_sum: Tensor  # real
    host_params: Tensor  # int64
    n_active_seeds: Tensor  # int64, seeds that are not fossilized
    n_fossilized: Tensor  # int64
    n_contributing_fossilized: Tensor  # int64, fossils worth at least a point
    escrow_balance: Tensor  # real
    drip_scale: Tensor  # real, 0 without a record


class Payment(NamedTuple):
    """Outputs of a kernel; `components` sum to its total, `ledger` its next ledgers and intermediate values."""

    components: dict[str, Tensor]
    diagnostics: dict[str, Tensor]
    ledger: dict[str, Tensor]
