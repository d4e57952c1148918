"""Shapley values and interactions of a cooperative game: constant matrices on a table, telescopes
on permutations.

A table holds `v(M)` in column m, bit j of m set = position j is in M.  A position that makes no
difference in the table is a dummy, so the matrices for N positions are right for every number of
players up to N.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from morphogen.state.tree_ops import Table, choose, computed_table


def shapley_weights(positions: int) -> tuple[tuple[float, ...], ...]:
    """Weights [N, 2^N]: the Shapley value of position i is row i times the table."""
    orders = math.factorial(positions)

    def weight(i: int, m: int) -> float:
        others = (m & ~(1 << i)).bit_count()
        sign = 1 if m >> i & 1 else -1
        return sign * math.factorial(others) * math.factorial(positions - 1 - others) / orders

    return tuple(tuple(weight(i, m) for m in range(2**positions)) for i in range(positions))


def interaction_weights(positions: int) -> tuple[tuple[float, ...], ...]:
    """Weights [N*N, 2^N]: v({i,j}) - v({i}) - v({j}) + v(empty), 0 on the diagonal."""

    def row(i: int, j: int) -> tuple[float, ...]:
        signs = {} if i == j else {1 << i | 1 << j: 1.0, 1 << i: -1.0, 1 << j: -1.0, 0: 1.0}
        return tuple(signs.get(m, 0.0) for m in range(2**positions))

    return tuple(row(i, j) for i in range(positions) for j in range(positions))


def shapley(values: Tensor, positions: int) -> Tensor:
    """Exact Shapley values of a game; they sum to v(all) - v(none).

    Shapes: values float [E, 2^N], N = `positions` -> float [E, N].  Column m: bit j set
    = j takes part.
    Source: Shapley, A Value for n-Person Games, 1953.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> values = torch.tensor([[0.0, 10.0, 20.0, 50.0]])  # v(none), v(0), v(1), v(all)
        >>> mg.rules.shapley(values, 2).tolist()
        [[20.0, 30.0]]
    """
    return _apply_weights(shapley_weights, positions, values)


def interactions(values: Tensor, positions: int) -> Tensor:
    """Pairwise interactions on the bare host: v(i, j) - v(i) - v(j) + v(none).

    Shapes: values float [E, 2^N], N = `positions`, columns as in `shapley` -> float [E,
    N, N], symmetric, diagonal 0.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> mg.rules.interactions(torch.tensor([[0.0, 10.0, 20.0, 50.0]]), 2).tolist()
        [[[0.0, 20.0], [20.0, 0.0]]]
    """
    return torch.unflatten(
        _apply_weights(interaction_weights, positions, values), -1, (positions, positions)
    )


def marginals(values: Tensor, joined: Tensor) -> Tensor:
    """Mean marginal over orders: what the value gains when a player joins.

    Shapes: values [E, Q, n], along each of Q orders; joined bool [E, Q, n-1, S], who joins at each
    step -> [E, S].
    """
    gain = values[..., 1:] - values[..., :-1]
    return choose(joined, gain.unsqueeze(-1), 0.0).sum(dim=2).mean(dim=1)


def _apply_weights(weights: Callable[[int], Table], positions: int, values: Tensor) -> Tensor:
    table = computed_table(weights, positions, dtype=values.dtype, device=values.device)
    # a product and a sum, not a matrix product: each row has the same rounding whatever the other
    # rows are
    return (values.unsqueeze(-2) * table).sum(-1)
