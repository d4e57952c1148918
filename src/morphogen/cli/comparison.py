"""Comparison of sides: missing runs trained, held-out instances played, statistics and a verdict for each pair."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.cli.compare import ComparisonSide
from morphogen.device.transfers import Transfers
from morphogen.engine.policies import TRAINED_PREFIX, build_arm
from morphogen.engine.scheduler import Hooks, Parts
from morphogen.engine.setup import build_setup
from morphogen.evaluation.bootstrap import (
    Array,
    Estimate,
    effect_size,
    improvement_probability,
    interval,
    iqm,
    seed_interval,
)
from morphogen.evaluation.evaluate import evaluation_spec, format_estimate
from morphogen.evaluation.play import ArmResult, play
from morphogen.run.train import resume, train_ppo_vectorized
from morphogen.storage import run_directory

NO_VERDICT = "no verdict"
BOOTSTRAP_SEED = 0
COMPARED_FIELDS = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
Row = dict[str, Any]
SidePair = dict[str, str | float | Estimate | None]


def train_side(side: ComparisonSide, *, console: Any, halt: Callable[[], bool]) -> None:
    """Train the missing runs of a side and resume the stopped ones, until `halt` returns True."""
    for run, spec in zip(side.runs, side.specs, strict=True):
        if not side.needs_training or halt():
            return
        hooks = {"console": console, "parts": Parts(hooks=Hooks(should_stop=halt))}
        if not (run / run_directory.CONFIG).exists():
            train_ppo_vectorized(spec, out=run, command="morphogen compare", **hooks)
        elif run_directory.open_directory(run)[2].get("status") != run_directory.STATUS_COMPLETED:
            resume(run, spec, **hooks)


def compare(
    sides: Sequence[ComparisonSide], *, episodes: int, report: Callable[[str], None] = print
) -> tuple[list[SidePair], Row]:
    """Play every run of every side; return the pairs of sides, and all numbers for a file.

    Runs make pairs by their position: a pair plays the instances of the seed of its first run.
    """
    results: dict[str, list[ArmResult]] = {}
    for side in sides:
        for run, spec, first in zip(side.runs, side.specs, sides[0].specs, strict=True):
            setup = build_setup(evaluation_spec(spec, seed=first.seed, envs=first.envs))
            transfers, arm = Transfers(setup.device, time.perf_counter), build_arm(f"{TRAINED_PREFIX}{run}", setup)
            with torch.no_grad():
                result = play(setup, transfers, arm, name=str(run), episodes=episodes)
            results.setdefault(side.name, []).append(result)
            report(f"{side.name}: {run}: {episodes} episodes in {result.seconds:.1f} s")
    values = {name: np.stack([result.network_value for result in runs]) for name, runs in results.items()}
    first, *rest = values
    pairs = [compare_pair(first, other, values[first], values[other]) for other in rest]
    return pairs, {
        "episodes": episodes,
        "seeds": [spec.seed for spec in sides[0].specs],
        "sides": {side.name: _side_facts(side, results[side.name], values[side.name]) for side in sides},
        "pairs": [
            {key: value._asdict() if isinstance(value, Estimate) else value for key, value in pair.items()}
            for pair in pairs
        ],
    }


def compare_pair(first: str, second: str, first_values: Array, second_values: Array) -> SidePair:
    """Return the statistics of a pair of sides.  first_values, second_values: network values [R, n], paired.

    `over seeds`: interval over other training seeds, None with one seed; a verdict needs both intervals to exclude 0.
    """
    differences = first_values - second_values
    difference, seeds = interval(differences, seed=BOOTSTRAP_SEED), seed_interval(differences)
    return {
        "first": first,
        "second": second,
        "difference": difference,
        "over seeds": seeds,
        "effect": effect_size(first_values, second_values),
        "P(first is better)": improvement_probability(first_values, second_values, seed=BOOTSTRAP_SEED),
        "verdict": verdict(first, second, difference, seeds),
    }


def verdict(first: str, second: str, difference: Estimate, seeds: Estimate | None) -> str:
    """Name the better side if every interval of the difference excludes 0."""
    if not all(estimate.excludes_zero for estimate in (difference, seeds) if estimate is not None):
        return NO_VERDICT
    better, worse = (first, second) if difference.value > 0 else (second, first)
    return f"{better} is better than {worse}"


def pair_row(pair: SidePair) -> Row:
    """Return the row of a pair in a table."""
    difference, seeds, probability = pair["difference"], pair["over seeds"], pair["P(first is better)"]
    assert isinstance(difference, Estimate)
    assert isinstance(probability, Estimate)
    return {
        "sides": " minus ".join(Path(str(pair[side])).name for side in ("first", "second")),
        "network value (95 % interval)": format_estimate(difference._asdict(), "+"),
        "over seeds": f"{seeds.low:+.3f} .. {seeds.high:+.3f}" if isinstance(seeds, Estimate) else "-",
        "effect": pair["effect"],
        "P(first is better)": format_estimate(probability._asdict()),
    }


def _side_facts(side: ComparisonSide, results: Sequence[ArmResult], values: Array) -> Row:
    """Return the numbers of a side per run and episode."""
    return {
        "runs": [str(run) for run in side.runs],
        "seeds": [spec.seed for spec in side.specs],
        "mean": interval(values, seed=BOOTSTRAP_SEED)._asdict(),
        "iqm": iqm(values, seed=BOOTSTRAP_SEED)._asdict(),
        "seconds": [result.seconds for result in results],
        **{name: [getattr(result, name).tolist() for result in results] for name in COMPARED_FIELDS},
    }
