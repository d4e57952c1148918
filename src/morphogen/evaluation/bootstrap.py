"""Statistics of reported numbers: a stratified bootstrap over episodes, drawn from a counter-based
stream.

A sample is one number per held-out episode, float [n], or [R, n] with a row per training run.  The
rows are strata: the episodes of each are drawn again within it, the runs stay.  The same resamples
serve every sample of a shape.  Ends at plain percentiles are too near to each other for few
episodes; they are taken further out, as Student's t is wider than the normal (Hesterberg 2015,
"expanded percentiles").
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

MAX_RESAMPLES = 10_000  # of a small sample
MIN_RESAMPLES = 1_000  # of a huge sample
MAX_DRAWS = 2**24  # of a sample between them
CONFIDENCE_LEVEL = 0.95
MIDDLE_SHARES = (0.25, 0.75)  # ends of the ordered values that the interquartile mean averages
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf((1 + CONFIDENCE_LEVEL) / 2)
_T = (12.706, 4.303, 3.182, 2.776)  # quantiles of Student's t with 1 .. 4 degrees of freedom
Array = np.ndarray[Any, Any]


class Estimate(NamedTuple):
    """A number and both ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@lru_cache(maxsize=4)
def draw_resamples(runs: int, episodes: int, *, seed: int, count: int) -> Array:
    """Draw counts of each episode in each resample: int16 [count, runs * episodes], `episodes` of
    every run.
    """
    drawn = np.empty((count, runs, episodes), dtype=np.int16)
    first = (np.arange(count) * episodes)[:, None]
    for run in range(runs):
        stream = rng.stream(rng.env_keys(seed, 0, 1), Purpose.BOOTSTRAP, round=run)
        pick = (
            rng.bounded_ints(rng.random_bits(stream, count * episodes), episodes)
            .numpy()
            .reshape(count, episodes)
        )
        drawn[:, run] = np.bincount((pick + first).ravel(), minlength=count * episodes).reshape(
            count, episodes
        )
    return drawn.reshape(count, -1)


def resample_means(drawn: Array, values: Array) -> Array:
    """Means of resamples.  drawn [B, N], values [N] -> [B]."""
    return drawn.astype(np.float64) @ values / drawn.shape[1]


def resample_iqms(drawn: Array, values: Array) -> Array:
    """Interquartile means of resamples, values on an edge counted in part.  drawn [B, N], values
    [N] -> [B].
    """
    order = np.argsort(values, kind="stable")
    low, high = (share * len(values) for share in MIDDLE_SHARES)
    below = np.cumsum(drawn[:, order], axis=1, dtype=np.float64).clip(low, high)
    weight = np.diff(below, axis=1, prepend=low)
    return weight @ values[order] / (high - low)


def interval(values: Array, *, seed: int, count: int | None = None) -> Estimate:
    """Estimate a mean with its 95 % interval, by a stratified bootstrap over episodes.

    Args:
        values: float [n], a number per episode, or [R, n] with a row per training run; n >= 1.
            Episodes are drawn again within their row.
        seed: of the resamples.  Calls with equal seeds and shapes use the same resamples.
        count: number of resamples; None: 10,000, fewer for many values.

    Returns: the mean and both ends of its interval, which is wider for few values.
    Source: T. Hesterberg, What Teachers Should Know About the Bootstrap (2015), expanded
    percentiles.

    Example:
        >>> import numpy as np
        >>> import morphogen as mg
        >>> for n in (8, 80):
        ...     estimate = mg.interval(np.arange(n) % 2, seed=0)
        ...     print(n, estimate.value, round(estimate.low, 2), round(estimate.high, 2))
        8 0.5 0.12 0.88
        80 0.5 0.39 0.61
    """
    return _bootstrap_estimate(resample_means, values, seed=seed, count=count)


def iqm(values: Array, *, seed: int, count: int | None = None) -> Estimate:
    """The interquartile mean: of the middle half of all values.  values [n] or [R, n], n >= 1."""
    return _bootstrap_estimate(resample_iqms, values, seed=seed, count=count, parts=2)


def improvement_probability(
    ours: Array, theirs: Array, *, seed: int, count: int | None = None
) -> Estimate:
    """Estimate the probability to do better on an instance; a tie counts half.

    Shapes: ours, theirs float [n] or [R, n], paired; the runs are pooled.  `seed`, `count`: as in
    `interval`. Two wins and two losses are added for the interval, so that it does not vanish where
    one side always wins.
    Source: A. Agresti and B. Coull, Approximate Is Better than "Exact" for Interval Estimation
    (1998).

    Example:
        >>> import numpy as np
        >>> import morphogen as mg
        >>> better = mg.improvement_probability(
        ...     np.array([0.5, 0.7, 0.6]), np.array([0.4, 0.7, 0.1]), seed=0
        ... )
        >>> round(better.value, 2), round(better.low, 2), round(better.high, 2)
        (0.83, 0.21, 1.0)
    """
    wins = 0.5 + 0.5 * np.sign(np.asarray(ours, dtype=np.float64) - theirs).ravel()
    _, low, high = interval(np.concatenate((wins, (0.0, 0.0, 1.0, 1.0))), seed=seed, count=count)
    return Estimate(float(wins.mean()), max(low, 0.0), min(high, 1.0))


def format_estimate(estimate: Mapping[str, float] | None, sign: str = "") -> str:
    """Return the text of an estimate, such as `0.700 (0.650 .. 0.750)`; "" for None."""
    if estimate is None:
        return ""
    value, low, high = (format(estimate[name], f"{sign}.3f") for name in Estimate._fields)
    return f"{value} ({low} .. {high})"


def effect_size(ours: Array, theirs: Array) -> float | None:
    """The mean paired difference in standard deviations of it; None where all differences are
    equal.
    """
    difference = (np.asarray(ours, dtype=np.float64) - theirs).ravel()
    spread = difference.std(ddof=1) if len(difference) > 1 else 0.0
    return float(difference.mean() / spread) if spread > 1e-12 else None


def seed_interval(values: Array) -> Estimate | None:
    """The mean over runs with Student's interval, for other training seeds.  [R, n];
    None for one run.
    """
    means = np.asarray(values, dtype=np.float64).mean(axis=1)
    if len(means) < 2:
        return None
    room = student_t_quantile(len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    middle = float(means.mean())
    return Estimate(middle, float(middle - room), float(middle + room))


def resample_count(values: int) -> int:
    """Number of resamples of a number of values: fewer for many values, so that they always fit
    into memory.
    """
    return max(MIN_RESAMPLES, min(MAX_RESAMPLES, MAX_DRAWS // values))


def tail_shares(size: int, degrees: int) -> tuple[float, float]:
    """The percentiles, as shares, that make an interval of resamples.  size: values; freedom:
    degrees of it.
    """
    free = max(degrees, 1)
    tail = _NORMAL.cdf(-student_t_quantile(free) * math.sqrt(max(size, 1) / free))
    return tail, 1 - tail


def student_t_quantile(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t, within 0.003 (Abramowitz and Stegun 26.7.5)."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees**k for k, term in enumerate(terms, start=1))


def stability(accuracy: Array) -> Array:
    """`1 / (1 + var)` of the last 20 differences of accuracy.  [T, E] -> [E]; 1 with fewer than two
    differences.
    """
    steps = np.diff(accuracy.astype(np.float64), axis=0)[-20:]
    return 1.0 / (1.0 + steps.var(axis=0)) if len(steps) > 1 else np.ones(accuracy.shape[1])


def _bootstrap_estimate(
    statistic: Callable[[Array, Array], Array],
    values: Array,
    *,
    seed: int,
    count: int | None,
    parts: int = 1,
) -> Estimate:
    """count: of resamples, None: enough; parts: the statistic is of a value in so many."""
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    flat = rows.ravel()
    size = len(flat) // parts
    value = statistic(np.ones((1, len(flat)), dtype=np.int16), flat)[0]
    drawn = draw_resamples(*rows.shape, seed=seed, count=count or resample_count(len(flat)))
    shares = tail_shares(size, size - len(rows))
    # the weibull method is unbiased for few resamples too
    low, high = np.quantile(statistic(drawn, flat), shares, axis=0, method="weibull")
    return Estimate(float(value), float(low), float(high))
