"""Cost of growth in a legacy rule: parameters in use, and sudden changes of their alpha."""

from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.legacy_rewards import LegacyRewardSpec
from morphogen.rules.stages import blended, occupied


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
    """Parameters in use, and the squared changes of alpha weighted by the seeds that were there before.

    Shapes: stage, seed_params, prev_params int64, alpha, prev_alpha real [E, S]; host_params int64 [E] -> Growth.
    Promise: a removal is charged once, a first activation never.
    """
    seed = occupied(stage)
    alpha, params = torch.where(seed, alpha, 0.0), torch.where(seed, seed_params, 0)
    floored = host_params.clamp(min=spec.host_params_floor).to(alpha.dtype).unsqueeze(-1)
    moved = (alpha - prev_alpha).square() * prev_params.to(alpha.dtype) / floored
    used = effective_seed_params(stage, alpha, params, host_params=host_params, slot_rent_ratio=spec.slot_rent_ratio)
    return RentInputs(used, moved.sum(-1), alpha, params)
