"""Unit of returns: one running deviation for all envs and steps; rewards are divided by this unit, never shifted."""

import torch
from tensordict import TensorClass
from torch import Tensor

from morphogen.learn.advantage import discounted_sum

SCALE_DECAY = 0.9  # of the running moments, per round
MIN_SCALE = 0.05  # of the scale, in reward units


class ScaleState(TensorClass["frozen"]):
    """Decayed first and second moment of discounted returns.  batch_size []."""

    first: Tensor  # float64 [], sum of weights times the mean
    second: Tensor  # float64 []
    rounds: Tensor  # int64 []


def init_scale(device: torch.device | str = "cpu") -> ScaleState:
    """Return the initial state: scale 1."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return ScaleState(first=zero, second=zero.clone(), rounds=zero.to(torch.int64), batch_size=[], device=device)


def running_mean(state: ScaleState) -> Tensor:
    """Mean of the returns seen, in reward units: float64 []; 0 before the first round."""
    return state.first / _total_weight(state)


def return_scale(state: ScaleState) -> Tensor:
    """Reward units in one return unit: float64 [], >= 0.05; 1 before the first round."""
    mean = running_mean(state)
    deviation = (state.second / _total_weight(state) - mean.square()).clamp_min(0.0).sqrt().clamp_min(MIN_SCALE)
    return torch.where(state.rounds > 0, deviation, 1.0)


def rescale_rewards(
    state: ScaleState, reward: Tensor, terminated: Tensor, gamma: float, executed: Tensor, *, kind: str = "running"
) -> tuple[ScaleState, Tensor, Tensor]:
    """Update the scale with the returns of one round and divide the rewards by it.

    Shapes: reward, terminated [T, E]; executed bool [E] or [T, E], False for envs that do not count
    -> (state, reward / scale [T, E], value_factor []): values predicted in the old unit are multiplied by the factor.
    Promise: signs, zeros and ratios of rewards are kept; a round without a counted row leaves the state unchanged.
    `kind`: "running", or "fixed" for scale 1 and a state that never changes.
    """
    if kind == "fixed":
        return state, reward, torch.ones_like(reward[0, 0])
    counts = executed.expand_as(reward)
    known = torch.where(counts, reward, 0.0)
    returns = discounted_sum(known.to(torch.float64), terminated, factor=gamma)
    number = counts.sum()
    total = number.clamp_min(1)
    first = torch.where(counts, returns, 0.0).sum() / total
    second = torch.where(counts, returns.square(), 0.0).sum() / total
    learned = state.replace(
        first=torch.where(number > 0, SCALE_DECAY * state.first + (1 - SCALE_DECAY) * first, state.first),
        second=torch.where(number > 0, SCALE_DECAY * state.second + (1 - SCALE_DECAY) * second, state.second),
        rounds=state.rounds + (number > 0).to(torch.int64),
    )
    unit = return_scale(learned)
    factor = torch.where(state.rounds > 0, return_scale(state) / unit, 1.0)
    return learned, (known / unit).to(reward.dtype), factor.to(reward.dtype)


def _total_weight(state: ScaleState) -> Tensor:
    """Sum of the weights behind the moments: `1 - 0.9 ** rounds`, 1 before the first round."""
    weight = 1.0 - SCALE_DECAY ** state.rounds.to(torch.float64)
    return torch.where(state.rounds > 0, weight, 1.0)
