"""Returns of a round, compared with the targets of its learner."""

import math
from collections.abc import Mapping

import numpy as np

from morphogen.log.codec import Array


def return_gap(
    reward: Array, ended: Array, update: Mapping[str, float], gamma: float
) -> float | None:
    """Mean discounted return of all steps, less the mean of those that the learner aims at, in
    deviations of these.

    Shapes: reward float [T, E]; ended bool [T, E], a rollback ends an episode there.  None where it
    is not known.
    """
    mean = update.get("return_mean", math.nan)
    deviation = update.get("return_std", 0.0)
    if not math.isfinite(mean) or not deviation > 0 or not np.isfinite(reward).all():
        return None
    rows = []
    after = np.zeros(reward.shape[1])
    for amount, end in zip(reward[::-1].astype(np.float64), ended[::-1], strict=True):
        after = amount + gamma * np.where(end, 0.0, after)
        rows.append(after)
    return float((np.mean(rows) - mean) / deviation)
