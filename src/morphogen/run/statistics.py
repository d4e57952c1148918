"""Statistics of reported numbers: the percentile bootstrap of a mean, drawn from a counter-based stream."""

from typing import Any

import numpy as np

from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

RESAMPLES, LEVEL = 10_000, 0.95
Array = np.ndarray[Any, Any]


def interval(values: Array, *, seed: int) -> tuple[float, float, float]:
    """Mean, and low and high end of its 95 % interval.  values [N], N >= 1."""
    count = len(values)
    stream = rng.stream(rng.env_keys(seed, 0, 1), Purpose.BOOTSTRAP)
    pick = rng.below(rng.bits(stream, RESAMPLES * count), count).numpy().reshape(RESAMPLES, count)
    means = np.asarray(values, dtype=np.float64)[pick].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.mean(values)), float(low), float(high)


def stability(accuracy: Array) -> Array:
    """`1 / (1 + var)` of the last 20 differences of accuracy.  [T, E] -> [E]; 1 with fewer than two differences."""
    steps = np.diff(accuracy.astype(np.float64), axis=0)[-20:]
    return 1.0 / (1.0 + steps.var(axis=0)) if len(steps) > 1 else np.ones(accuracy.shape[1])
