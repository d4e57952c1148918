"""Contributions, rewards and advantages, one permutation, step or row at a time."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

CoalitionValue = Callable[[int], float]  # value of a coalition; bit s: player s is a member


def shapley(value: CoalitionValue, players: Sequence[int]) -> dict[int, float]:
    """Mean marginal value of each player over all permutations."""
    share = dict.fromkeys(players, 0.0)
    orders = list(itertools.permutations(players))
    for order in orders:
        coalition = 0
        for player in order:
            share[player] += value(coalition | 1 << player) - value(coalition)
            coalition |= 1 << player
    return {player: total / len(orders) for player, total in share.items()}


def interaction(value: CoalitionValue, first: int, second: int) -> float:
    """Value of two players together beyond the sum of their values alone, on the bare host."""
    return value(1 << first | 1 << second) - value(1 << first) - value(1 << second) + value(0)


def shaping(potentials: Sequence[float | None], ended: Sequence[bool], gamma: float) -> list[float]:
    """Potential-based shaping of one env: `gamma phi' - phi`, where phi is 0 at both ends of a segment.

    `potentials`: after each step; None: not measured, the last potential is carried.
    """
    paid, phi = [], 0.0
    for potential, end in zip(potentials, ended, strict=True):
        after = 0.0 if end else phi if potential is None else potential
        paid.append(gamma * after - phi)
        phi = after
    return paid


def core_rewards(
    rule: str, steps: Sequence[Mapping[str, Any]], *, gamma: float, budget: int, length: int, **params: float
) -> list[float]:
    """Rewards of one env under a core rule; a step has the fields of `RewardInputs` as plain numbers.

    `rule`: sparse, delta, value, rent or loss.  `params`: potential_scale (1), governor_penalty (1), op_cost (0).
    """
    scale, penalty = params.get("potential_scale", 1.0), params.get("governor_penalty", 1.0)
    potentials = [_potential(rule, scale, step, budget) for step in steps]
    shaped = shaping(potentials, [step["horizon"] or step["rolled_back"] for step in steps], gamma)
    out = []
    for step, extra in zip(steps, shaped, strict=True):
        if step["rolled_back"]:
            out.append(-penalty + extra)
            continue
        fee = 0.0 if rule == "sparse" or step["op"] == 0 or not step["op_executed"] else params.get("op_cost", 0.0)
        upkeep = step["param_price"] * step["live_params"] / (budget * length) if rule == "rent" else 0.0
        out.append((_value(rule, step, budget) if step["horizon"] else 0.0) + extra - fee - upkeep)
    return out


def _value(rule: str, step: Mapping[str, Any], budget: int) -> float:
    if not step["committed_valid"]:
        return 0.0
    price = 0.0 if rule == "rent" else step["param_price"] * step["fossil_params"] / budget
    return max(-1.0, min(1.0, step["committed_acc"] / 100 - price))


def _potential(rule: str, scale: float, step: Mapping[str, Any], budget: int) -> float | None:
    if rule == "sparse":
        return 0.0
    if rule == "value":
        return scale * _value(rule, step, budget) if step["committed_valid"] else None
    if rule == "loss":
        if not step["loss_valid"]:
            return None
        share = (step["baseline_loss"] - step["val_loss"]) / (step["baseline_loss"] - step["target_loss"])
        return scale * max(0.0, min(1.0, share))
    return scale * step["clean_improvement"] / 100 if step["clean_valid"] else None


def gae(rows: Sequence[Mapping[str, Any]], *, gamma: float, lam: float) -> list[float]:
    """Advantages of one env: the discounted sum of the errors from each row to the end of its segment.

    A row has reward, value, next_value (after the row), terminated and truncated.
    """
    out = []
    for start in range(len(rows)):
        total, weight = 0.0, 1.0
        for t in range(start, len(rows)):
            total += weight * _td_error(rows, t, gamma)
            if rows[t]["terminated"] or rows[t]["truncated"]:
                break
            weight *= gamma * lam
        out.append(total)
    return out


def _td_error(rows: Sequence[Mapping[str, Any]], t: int, gamma: float) -> float:
    row = rows[t]
    if row["terminated"]:
        after = 0.0
    elif row["truncated"] or t == len(rows) - 1:
        after = row["next_value"]
    else:
        after = rows[t + 1]["value"]
    return row["reward"] + gamma * after - row["value"]
