"""`morphogen compare`: sides that are trained on the same seeds and play the same held-out instances, and a verdict."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.cli.compare_sides import ComparisonSide
from morphogen.config.spec import RunSpec
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
BOOTSTRAP_SEED = 0  # of the resamples
COMPARED_FIELDS = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
Row = dict[str, Any]
SidePair = dict[str, str | float | Estimate | None]


def train_side(side: ComparisonSide, *, console: Any, halt: Callable[[], bool]) -> None:
    """Make the runs of a side that lack, and go on with those that were stopped; until `halt`."""
    for run, spec in zip(side.runs, side.specs, strict=True):
        if side.needs_training and not halt() and not _is_completed(run):
            go = resume if (run / run_directory.CONFIG).exists() else _start_run
            go(run, spec, console=console, parts=Parts(hooks=Hooks(should_stop=halt)))


def _start_run(run: Path, spec: RunSpec, *, console: Any, parts: Parts) -> None:
    train_ppo_vectorized(spec, out=run, console=console, parts=parts, command="morphogen compare")


def _is_completed(run: Path) -> bool:
    return (run / run_directory.CONFIG).exists() and run_directory.open_directory(run)[2].get(
        "status"
    ) == run_directory.STATUS_COMPLETED


def compare(
    sides: Sequence[ComparisonSide], *, episodes: int, report: Callable[[str], None] = print
) -> tuple[list[SidePair], Row]:
    """Play every run of every side, and judge; the pairs of sides, and every number as a file holds it.

    Runs make pairs by their place: a pair plays the instances of the seed of its first run.
    """
    found: dict[str, list[ArmResult]] = {}
    for side in sides:
        for run, spec, first in zip(side.runs, side.specs, sides[0].specs, strict=True):
            one = _play_run(run, spec, first, episodes)
            found.setdefault(side.name, []).append(one)
            report(f"{side.name}: {run}: {episodes} episodes in {one.seconds:.1f} s")
    values = {name: np.stack([one.network_value for one in results]) for name, results in found.items()}
    first, *rest = values
    pairs = [compare_pair(first, other, values[first], values[other]) for other in rest]
    return pairs, {
        "episodes": episodes,
        "seeds": [spec.seed for spec in sides[0].specs],
        "sides": {side.name: _side_facts(side, found[side.name], values[side.name]) for side in sides},
        "pairs": [{key: _to_json(value) for key, value in pair.items()} for pair in pairs],
    }


def _play_run(run: Path, spec: RunSpec, first: RunSpec, episodes: int) -> ArmResult:
    setup = build_setup(evaluation_spec(spec, seed=first.seed, envs=first.envs))
    fences = Transfers(setup.device, time.perf_counter)
    with torch.no_grad():
        return play(setup, fences, build_arm(f"{TRAINED_PREFIX}{run}", setup), name=str(run), episodes=episodes)


def compare_pair(first: str, second: str, first_values: Array, second_values: Array) -> SidePair:
    """A pair of sides.  ours, theirs: network values [R, n], paired.

    `over seeds`: what other training seeds would do, None with one seed; where there is one, it has to leave out 0 as
    well for a verdict.
    """
    found, seeds = (
        interval(first_values - second_values, seed=BOOTSTRAP_SEED),
        seed_interval(first_values - second_values),
    )
    return {
        "first": first,
        "second": second,
        "difference": found,
        "over seeds": seeds,
        "effect": effect_size(first_values, second_values),
        "P(first is better)": improvement_probability(first_values, second_values, seed=BOOTSTRAP_SEED),
        "verdict": verdict(first, second, found, seeds),
    }


def verdict(first: str, second: str, difference: Estimate, seeds: Estimate | None) -> str:
    """Name the better side if every interval of the difference excludes 0."""
    if not all(one.excludes_zero for one in (difference, seeds) if one is not None):
        return NO_VERDICT
    better, worse = (first, second) if difference.value > 0 else (second, first)
    return f"{better} is better than {worse}"


def pair_row(pair: SidePair) -> Row:
    """A pair in a table."""
    found, seeds, often = pair["difference"], pair["over seeds"], pair["P(first is better)"]
    assert isinstance(found, Estimate)
    assert isinstance(often, Estimate)
    return {
        "sides": " minus ".join(Path(str(pair[side])).name for side in ("first", "second")),
        "network value (95 % interval)": format_estimate(found._asdict(), "+"),
        "over seeds": f"{seeds.low:+.3f} .. {seeds.high:+.3f}" if isinstance(seeds, Estimate) else "-",
        "effect": pair["effect"],
        "P(first is better)": format_estimate(often._asdict()),
    }


def _to_json(value: str | float | Estimate | None) -> object:
    return value._asdict() if isinstance(value, Estimate) else value


def _side_facts(side: ComparisonSide, results: Sequence[ArmResult], values: Array) -> Row:
    """A side, every number per run and episode."""
    return {
        "runs": [str(run) for run in side.runs],
        "seeds": [spec.seed for spec in side.specs],
        "mean": interval(values, seed=BOOTSTRAP_SEED)._asdict(),
        "iqm": iqm(values, seed=BOOTSTRAP_SEED)._asdict(),
        "seconds": [one.seconds for one in results],
        **{name: [getattr(one, name).tolist() for one in results] for name in COMPARED_FIELDS},
    }
