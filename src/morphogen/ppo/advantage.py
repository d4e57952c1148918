"""Generalised advantage estimation and the normalisation of its result."""

import torch
import torch.nn.functional as F
from torch import Tensor

from morphogen.ppo.moments import Moments, masked_moments
from morphogen.state.tree_ops import choose


def discounted_sum(x: Tensor, ended: Tensor, *, factor: float) -> Tensor:
    """Discounted sum from every row on: `y[t] = x[t] + factor * y[t+1]`, anew at an end and at the
    last row.

    Shapes: x [T, E]; ended bool [T, E], True in the last row of a segment -> like x.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> ended = torch.tensor([[False], [True], [False], [False]])
        >>> mg.ppo.discounted_sum(torch.ones(4, 1), ended, factor=0.5).flatten().tolist()
        [1.5, 1.0, 1.5, 1.0]
    """
    rows: list[Tensor] = []
    after = torch.zeros_like(x[0])
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

    Shapes: all [T, E]; `next_value` is the value after a row, read where it is truncated and after
    the last row -> (advantage, returns) [T, E].
    Promise: values never cross the end of an episode; `terminated` wins over `truncated`.
    Source: Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage
    Estimation, 2016, eq. 16.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> reward, value = torch.ones(3, 1), torch.zeros(3, 1)
        >>> ends = torch.tensor([[False], [False], [True]])
        >>> _, returns = mg.ppo.gae(
        ...     reward,
        ...     value,
        ...     torch.zeros(3, 1),
        ...     ends,
        ...     torch.zeros_like(ends),
        ...     gamma=0.5,
        ...     gae_lambda=1.0,
        ... )
        >>> returns.flatten().tolist()
        [1.75, 1.5, 1.0]
    """
    following = torch.cat((value[1:], next_value[-1:]))
    following = torch.where(truncated, next_value, following)
    error = reward + gamma * choose(terminated, 0.0, following) - value
    advantage = discounted_sum(error, terminated | truncated, factor=gamma * gae_lambda)
    return advantage, advantage + value


def subtract_group_mean(advantage: Tensor, known: Tensor, group: int) -> Tensor:
    """Subtract from each advantage the mean of the others in its group, at the same row.

    Shapes: advantage [T, E]; known bool [T, E], entries that count -> like advantage.
    `group`: consecutive envs that play the same world; the last group may be smaller.  An entry
    without another one of its group stays as it is.
    Promise: the sum of a policy gradient keeps its mean, since what is subtracted does not depend
    on the action.
    Source: Kool, van Hoof and Welling, Buy 4 REINFORCE Samples, Get a Baseline for Free!, 2019.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> known = torch.tensor([[True, True, True, False]])
        >>> mg.ppo.subtract_group_mean(
        ...     torch.tensor([[1.0, 2.0, 6.0, 9.0]]), known, group=4
        ... ).tolist()
        [[-3.0, -1.5, 4.5, 6.0]]
    """
    if group == 1:
        return advantage
    missing = -advantage.shape[1] % group
    pairs = torch.stack((choose(known, advantage, 0.0), known.to(advantage.dtype)))
    groups = torch.unflatten(F.pad(pairs, (0, missing)), -1, (-1, group))
    sums = groups.sum(-1).repeat_interleave(group, -1)[..., : advantage.shape[1]]
    total, count = (sums - pairs).unbind()
    return advantage - total / count.clamp_min(1.0)


def standardise(
    advantage: Tensor, free: Tensor, *, floor: float = 0.1, moments: Moments | None = None
) -> Tensor:
    """Standardise advantages to mean 0 and deviation at most 1 over the free rows; only scale
    without any.

    Shapes: advantage [T, E]; free bool [T, E], rows with more than one legal action -> like
    advantage.
    `floor`: least deviation to divide by, in return units; `moments`: of all free rows, default: of
    these.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> free = torch.tensor([[True, True, False]])
        >>> mg.ppo.standardise(
        ...     torch.tensor([[1.0, 5.0, 9.0]]), free
        ... ).tolist()  # mean 3 and deviation 2
        [[-1.0, 1.0, 3.0]]
    """
    moments = masked_moments(advantage, free) if moments is None else moments
    return (advantage - moments.mean) / moments.variance.sqrt().clamp_min(floor)
