"""Generalised advantage estimation and the normalisation of its result."""

import torch
from torch import Tensor

from morphogen.rules.health import masked_moments


def discounted_sum(x: Tensor, ended: Tensor, *, factor: float) -> Tensor:
    """`y[t] = x[t] + factor * y[t+1]`, starting anew at an end and at the last row.  x, ended [T, E] -> [T, E]."""
    rows, after = [], torch.zeros_like(x[0])
    for now, end in zip(x.unbind(0)[::-1], ended.unbind(0)[::-1], strict=True):
        after = torch.where(end, now, torch.add(now, after, alpha=factor))
        rows.append(after)
    return torch.stack(rows[::-1])


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and returns.

    Shapes: all [T, E]; `next_value` is the value after a row, read where it is truncated and after the last row
    -> (advantage, returns) [T, E].
    Promise: values never cross the end of an episode; `terminated` wins over `truncated`.
    Source: Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016, eq. 16.
    """
    behind = torch.cat((value[1:], next_value[-1:]))
    behind = torch.where(truncated, next_value, behind)
    error = reward + gamma * torch.where(terminated, 0.0, behind) - value
    advantage = discounted_sum(error, terminated | truncated, factor=gamma * gae_lambda)
    return advantage, advantage + value


def standardise(advantage: Tensor, free: Tensor, *, floor: float = 0.1) -> Tensor:
    """Standardise advantages to mean 0 and deviation at most 1 over the free rows; only scale without any.

    Shapes: advantage, free bool [T, E] -> [T, E].  `floor`: least deviation to divide by, in return units.
    """
    mean, variance, _ = masked_moments(advantage, free)
    return (advantage - mean) / variance.sqrt().clamp_min(floor)
