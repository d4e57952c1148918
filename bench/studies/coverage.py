"""Coverage of the intervals of `morphogen evaluate` and `compare`: `python -m
bench.studies.coverage`.

Samples of many distributions are drawn whose true value is known; the share of intervals that hold
it is the coverage.
`saved`: episodes of `bench/results/learning.json`, drawn with replacement: the file itself is the
population.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.harness.machine import machine_facts
from morphogen.config import files
from morphogen.evaluation.bootstrap import (
    Estimate,
    improvement_probability,
    interval,
    iqm,
    resample_iqms,
    seed_interval,
)
from morphogen.evaluation.play import TRAINED_ARM
from morphogen.extras.compare.comparison import NO_VERDICT, verdict

RESULTS = Path(__file__).parents[1] / "results"
SAVED_FILE, FILE = RESULTS / "learning.json", RESULTS / "coverage.json"
RESAMPLE_COUNT, SAMPLES_PER_RESAMPLE = 400, 20  # resamples of an interval; samples that share them
ALIKE_FACTOR = 5  # times the samples, for the rarer thing: a verdict on sides that are alike
SIZES = {"64": (1, 64), "256": (1, 256), "3 runs of 64": (3, 64)}
# by statistic
SAMPLE_SEEDS = {
    "mean": 8,
    "mean of paired differences": 8,
    "iqm": 3,
    "probability of improvement": 6,
}
POPULATION_DRAWS = 1_000_000  # draws that stand for a whole distribution
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def load_saved() -> dict[str, np.ndarray]:
    """Network values of held-out episodes by arm; of what depends on a run, those beside the
    first.
    """
    found = json.loads(SAVED_FILE.read_text())["arms"]
    return {name: np.array(one["network_value"][0]) for name, one in found.items()}


def build_populations() -> dict[str, Draw]:
    """Distributions that a number of an episode may have."""
    return {
        "normal": lambda dice, shape: dice.normal(size=shape),
        "uniform": lambda dice, shape: dice.uniform(size=shape),
        "heavy tails": lambda dice, shape: dice.standard_t(4, size=shape),
        "skewed": lambda dice, shape: dice.beta(6.0, 2.0, size=shape),
        "two modes": lambda dice, shape: (
            np.where(dice.random(shape) < 0.35, 0.3, 0.7) + 0.05 * dice.normal(size=shape)
        ),
        **{f"saved, {name}": _draw_from(values) for name, values in load_saved().items()},
    }


def build_differences() -> dict[str, Draw]:
    """Paired differences: no difference, a small one, many ties, and the saved run."""
    own = load_saved()[TRAINED_ARM]
    return {
        "A against A": lambda dice, shape: dice.normal(size=shape) - dice.normal(size=shape),
        "small": lambda dice, shape: dice.normal(0.3, 1.0, size=shape),
        "half of them equal": lambda dice, shape: (
            dice.normal(0.2, 1.0, size=shape) * (dice.random(shape) < 0.5)
        ),
        "almost always ahead": lambda dice, shape: dice.normal(1.3, 1.0, size=shape),
        **{
            f"saved, {TRAINED_ARM} minus {name}": _draw_from(own - values)
            for name, values in load_saved().items()
            if name != TRAINED_ARM
        },
    }


def _draw_from(values: np.ndarray) -> Draw:
    return lambda dice, shape: dice.choice(values, size=shape)


def interval_coverage(
    draw: Draw,
    find: Callable[..., Estimate],
    truth: float,
    shape: tuple[int, int],
    *,
    samples: int,
    seed: int,
) -> dict:
    """Share of intervals that contain the true value, with its standard error.  seed: first number
    of the seed.
    """
    # other samples in every row
    dice = np.random.default_rng([seed, *shape, round(1e6 * abs(truth))])
    drawn = draw(dice, (samples, *shape))
    found = [
        find(one, seed=i // SAMPLES_PER_RESAMPLE, count=RESAMPLE_COUNT)
        for i, one in enumerate(drawn)
    ]
    held = np.mean([one.low <= truth <= one.high for one in found])
    wide = float(np.mean([one.high - one.low for one in found]))
    return {"coverage": float(held), "error": math.sqrt(held * (1 - held) / samples), "width": wide}


def chance(values: np.ndarray, *, seed: int, count: int) -> Estimate:
    """The probability of improvement of differences."""
    return improvement_probability(values, np.zeros_like(values), seed=seed, count=count)


def coverage_rows(samples: int) -> list[dict]:
    """A row per statistic, distribution and size."""
    rows = []
    for name, draw in {**build_populations(), **build_differences()}.items():
        paired = name in build_differences()
        whole = draw(np.random.default_rng(1), (POPULATION_DRAWS,))
        middle = resample_iqms(np.ones((1, POPULATION_DRAWS), dtype=np.int16), whole)[0]
        cases = {
            "mean of paired differences" if paired else "mean": (interval, whole.mean()),
            **(
                {"probability of improvement": (chance, 0.5 + 0.5 * np.sign(whole).mean())}
                if paired
                else {}
            ),
            **({} if paired else {"iqm": (iqm, middle)}),
        }
        for statistic, (find, truth) in cases.items():
            for label, shape in SIZES.items():
                found = interval_coverage(
                    draw, find, float(truth), shape, samples=samples, seed=SAMPLE_SEEDS[statistic]
                )
                rows.append(
                    {"statistic": statistic, "distribution": name, "episodes": label, **found}
                )
    return rows


def verdict_rows(samples: int) -> list[dict]:
    """Rate at which `compare` calls one of two equal sides better.

    `luck`: standard deviation between training seeds, in those between episodes.
    """
    rows = []
    for runs, luck in ((1, 0.0), (3, 0.0), (3, 0.5), (5, 0.5)):
        dice = np.random.default_rng(len(rows))
        given = 0
        for i in range(samples):
            ours, theirs = dice.normal(size=(2, runs, 64)) + luck * dice.normal(size=(2, runs, 1))
            found = interval(ours - theirs, seed=i // SAMPLES_PER_RESAMPLE, count=RESAMPLE_COUNT)
            given += verdict("A", "A again", found, seed_interval(ours - theirs)) != NO_VERDICT
        rows.append({"runs": runs, "luck": luck, "verdicts": given / samples})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--samples", type=int, default=2_000)
    given = parser.parse_args()
    began = time.process_time()
    rows = coverage_rows(given.samples)
    for row in rows:
        print(
            "{statistic:28} {distribution:26} {episodes:14} {coverage:.3f} +- {error:.3f}".format(
                **row
            )
        )
    same = verdict_rows(ALIKE_FACTOR * given.samples)
    for row in same:
        print("A against A, {runs} runs each, luck {luck}: verdicts {verdicts:.3f}".format(**row))
    facts = {
        "samples": given.samples,
        "resamples": RESAMPLE_COUNT,
        "seconds": time.process_time() - began,
    }
    found = {
        "machine": machine_facts(device="cpu", threads=1),
        **facts,
        "a_against_a": same,
        "rows": rows,
    }
    files.write_atomic(given.json, files.json_bytes(found))


if __name__ == "__main__":
    main()
