"""Rows and parts of the legacy kernels; parts are elementwise, in the dtype of their real arguments."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.groups import LegacyRewardSpec
from morphogen.rules.stages import blended, clamp_stage, occupied
from morphogen.state.tree_ops import constant_table
from morphogen.vocab.stage import OCCUPIED, Stage

_SEED_LEVELS = dict(zip(OCCUPIED, (1.0, 2.0, 3.5, 5.5, 6.0), strict=True))
STAGE_LEVELS = tuple(_SEED_LEVELS.get(stage, 0.0) for stage in Stage)
MATURE_EPOCHS = 5.0  # epochs in a stage
YOUNG_EPOCHS = 5  # epochs of life below which pruning costs more
ONE_POINT = 1.0  # points of contribution from which a seed is worth keeping
RANSOM_CONTRIBUTION, RANSOM_HARM = 0.1, -0.2  # points: removal hurts although the uncommitted seeds together do harm
MIN_SUM = 1e-8


class OptionalValue(NamedTuple):
    """Optional value, read only where the flag is True."""

    value: Tensor
    valid: Tensor  # bool


class SlotRows(NamedTuple):
    """Inputs of a kernel: a row is one slot of one env at one step.  Fields of an env may be [E, 1] beside [E, S].

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


def stage_potential(stage: Tensor, epochs: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Level of a stage and progress in it.  stage int64, epochs real [...] -> [...]."""
    level = constant_table(STAGE_LEVELS, epochs.dtype, epochs.device)[clamp_stage(stage)]
    return level + (spec.stage_progress * epochs).clamp(max=spec.stage_progress_cap)


def stage_pbrs(
    stage: Tensor,
    epochs: Tensor,
    previous_stage: Tensor,
    previous_epochs: Tensor,
    *,
    spec: LegacyRewardSpec,
    gamma: float,
) -> Tensor:
    """Weighted discounted change of the stage potential.  stages int64, epochs real [...] -> [...]."""
    staying = epochs >= 1
    place = torch.where(staying, stage, previous_stage)
    since = torch.where(staying, epochs - 1, previous_epochs)
    now, prior = stage_potential(stage, epochs, spec=spec), stage_potential(place, since, spec=spec)
    return spec.pbrs_weight * (gamma * now - prior)


def combine(a: Tensor, b: Tensor, *, how: str) -> Tensor:
    """A mean that needs both: 0 unless both are positive.  a, b [...], `how` "harmonic" or "minimum" -> [...]."""
    mean = torch.minimum(a, b) if how == "minimum" else 2 * a * b / (a + b).clamp(min=MIN_SUM)
    return torch.where((a > 0) & (b > 0), mean, 0.0)


def timing_discount(epoch: Tensor, *, warmup_epochs: int, floor: float) -> Tensor:
    """Worth of a germination in this epoch: a ramp from the floor to 1.  epoch real, >= 0 [...] -> [floor, 1]."""
    if warmup_epochs <= 0:
        return torch.ones_like(epoch)
    return floor + (1 - floor) * (epoch / warmup_epochs).clamp(max=1.0)


def log_rent(effective_seed_params: Tensor, host_params: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Rent by the logarithm of growth.  effective_seed_params real, host_params int64 [...] -> [...], <= 0."""
    host = host_params.clamp(min=spec.host_params_floor).to(effective_seed_params.dtype)
    return -(spec.rent_weight * torch.log1p(effective_seed_params / host)).clamp(max=spec.rent_cap)


def alpha_shock(alpha_delta_sq_sum: Tensor, *, spec: LegacyRewardSpec) -> Tensor:
    """Fine for sudden changes of alpha.  [...] -> [...], <= 0."""
    if not spec.use_anti_gaming:
        return torch.zeros_like(alpha_delta_sq_sum)
    return -(spec.shock_weight * alpha_delta_sq_sum).clamp(max=spec.shock_cap)


def synergy(interaction_sum: Tensor) -> Tensor:
    """Bonus for slots that help each other.  [...] -> [...], in [0, 0.1]."""
    return torch.where(interaction_sum > 0, 0.1 * torch.tanh(0.5 * interaction_sum), 0.0)


def maturity(epochs: Tensor) -> Tensor:
    """Maturity of a seed in its stage.  epochs real [...] -> [...], in [0, 1]."""
    return (epochs / MATURE_EPOCHS).clamp(max=1.0)


def drip(scale: Tensor, contribution: Tensor, *, cap: float, negative_ratio: float) -> Tensor:
    """One payment out of a drip pool.  scale >= 0, contribution [...] -> [...], with the sign of the contribution."""
    return (scale * contribution).clamp(min=-negative_ratio * cap, max=cap)


def hindsight_credit(boost: Tensor, improvement: Tensor, *, weight: float) -> Tensor:
    """Bonus of a scaffold for a fossil that it helped.  boost, improvement [...] -> [...], in [0, weight]."""
    both = (boost > 0) & (improvement > 0)
    return torch.where(both, weight * torch.tanh(0.1 * boost * improvement), 0.0)


def fossilize_shaping(stage: Tensor, epochs: Tensor, contribution: OptionalValue, uncommitted: OptionalValue) -> Tensor:
    """Bonus or penalty for fossilizing the seed.  stage int64, epochs real, others optional, all [...] -> [...]."""
    (q, known_q), (u, known_u) = contribution, uncommitted
    harm = -0.5 - (0.2 * u.abs()).clamp(max=1.0)
    harm = torch.where(known_q & (q > RANSOM_CONTRIBUTION) & (u < RANSOM_HARM), harm - 0.3, harm)
    good = (0.5 + 0.1 * q) * maturity(epochs)
    amount = torch.where(known_q & (q >= ONE_POINT), good, -0.2)
    amount = torch.where(u < 0, harm, amount)
    return torch.where((stage == int(Stage.HOLDING)) & known_u, amount, -1.0)


def prune_shaping(stage: Tensor, age: Tensor, contribution: OptionalValue) -> Tensor:
    """Bonus or penalty for pruning the seed.  stage int64, age real, contribution optional, all [...] -> [...]."""
    q, measured = contribution
    amount = (-0.3 - 0.05 * q).clamp(min=-0.9)
    amount = torch.where(q < 0, 0.1, amount)
    amount = torch.where(q < -0.5, 0.15, amount)
    amount = torch.where(measured, amount, 0.0)
    amount = torch.where(age < YOUNG_EPOCHS, -0.3 * (YOUNG_EPOCHS - age), amount)
    amount = torch.where(stage == int(Stage.FOSSILIZED), -1.0, amount)
    return torch.where(occupied(stage), amount, -0.2)


class RentInputs(NamedTuple):
    """Rent and shock inputs of an env, and what the next step compares with."""

    effective_seed_params: Tensor  # real [E]
    alpha_delta_sq_sum: Tensor  # real [E]
    prev_alpha: Tensor  # real [E, S]
    prev_params: Tensor  # int64 [E, S]


def effective_seed_params(
    stage: Tensor, alpha: Tensor, seed_params: Tensor, *, host_params: Tensor, slot_rent_ratio: float
) -> Tensor:
    """Parameters of blended seeds as far as they count, and a share of the host for each.

    Shapes: stage, seed_params int64, alpha real [E, S]; host_params int64 [E] -> [E].
    """
    share = slot_rent_ratio * host_params.to(alpha.dtype).unsqueeze(-1)
    return torch.where(blended(stage), share + alpha * seed_params.to(alpha.dtype), 0.0).sum(-1)


def rent_and_shock_inputs(
    stage: Tensor,
    alpha: Tensor,
    seed_params: Tensor,
    prev_alpha: Tensor,
    prev_params: Tensor,
    *,
    host_params: Tensor,
    spec: LegacyRewardSpec,
) -> RentInputs:
    """Parameters in use, and the squared changes of alpha weighted by the seeds before the step.

    Shapes: stage, seed_params, prev_params int64, alpha, prev_alpha real [E, S]; host_params int64 [E] -> RentInputs.
    Promise: a removal is charged once, a first activation never.
    """
    seed = occupied(stage)
    alpha, params = torch.where(seed, alpha, 0.0), torch.where(seed, seed_params, 0)
    floored = host_params.clamp(min=spec.host_params_floor).to(alpha.dtype).unsqueeze(-1)
    moved = (alpha - prev_alpha).square() * prev_params.to(alpha.dtype) / floored
    used = effective_seed_params(stage, alpha, params, host_params=host_params, slot_rent_ratio=spec.slot_rent_ratio)
    return RentInputs(used, moved.sum(-1), alpha, params)
