"""`morphogen compare`: sides that are trained on the same seeds and play the same held-out instances, and a verdict."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.cli.compare_sides import Side
from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.engine.policies import TRAINED_PREFIX, build_arm
from morphogen.engine.scheduler import Parts
from morphogen.engine.setup import build_setup
from morphogen.evaluation.bootstrap import Array, Estimate, across, effect, improvement, interval, iqm
from morphogen.evaluation.evaluate import judged, spread
from morphogen.evaluation.play import Result, play
from morphogen.run.train import resume, train_ppo_vectorized
from morphogen.storage import run_directory

NONE = "no verdict"
SEED = 0  # of the resamples
MEASURED = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
Row = dict[str, Any]
Pair = dict[str, str | float | Estimate | None]


def train(side: Side, *, console: Any, halt: Callable[[], bool]) -> None:
    """Make the runs of a side that lack, and go on with those that were stopped; until `halt`."""
    for run, spec in zip(side.runs, side.specs, strict=True):
        if side.trains and not halt() and not _done(run):
            go = resume if (run / run_directory.CONFIG).exists() else _begin
            go(run, spec, console=console, parts=Parts(halt=halt))


def _begin(run: Path, spec: RunSpec, *, console: Any, parts: Parts) -> None:
    train_ppo_vectorized(spec, out=run, console=console, parts=parts, command="morphogen compare")


def _done(run: Path) -> bool:
    return (run / run_directory.CONFIG).exists() and run_directory.open_directory(run)[2].get(
        "status"
    ) == run_directory.STATUS_COMPLETED


def compare(sides: Sequence[Side], *, episodes: int, told: Callable[[str], None] = print) -> tuple[list[Pair], Row]:
    """Play every run of every side, and judge; the pairs of sides, and every number as a file holds it.

    Runs make pairs by their place: a pair plays the instances of the seed of its first run.
    """
    found: dict[str, list[Result]] = {}
    for side in sides:
        for run, spec, first in zip(side.runs, side.specs, sides[0].specs, strict=True):
            one = _played(run, spec, first, episodes)
            found.setdefault(side.name, []).append(one)
            told(f"{side.name}: {run}: {episodes} episodes in {one.seconds:.1f} s")
    values = {name: np.stack([one.network_value for one in results]) for name, results in found.items()}
    first, *rest = values
    pairs = [judge(first, other, values[first], values[other]) for other in rest]
    return pairs, {
        "episodes": episodes,
        "seeds": [spec.seed for spec in sides[0].specs],
        "sides": {side.name: _facts(side, found[side.name], values[side.name]) for side in sides},
        "pairs": [{key: _plain(value) for key, value in pair.items()} for pair in pairs],
    }


def _played(run: Path, spec: RunSpec, first: RunSpec, episodes: int) -> Result:
    setup = build_setup(judged(spec, seed=first.seed, envs=first.envs))
    fences = Transfers(setup.device, time.perf_counter)
    with torch.no_grad():
        return play(setup, fences, build_arm(f"{TRAINED_PREFIX}{run}", setup), name=str(run), episodes=episodes)


def judge(first: str, second: str, ours: Array, theirs: Array) -> Pair:
    """A pair of sides.  ours, theirs: network values [R, n], paired.

    `over seeds`: what other training seeds would do, None with one seed; where there is one, it has to leave out 0 as
    well for a verdict.
    """
    found, seeds = interval(ours - theirs, seed=SEED), across(ours - theirs)
    return {
        "first": first,
        "second": second,
        "difference": found,
        "over seeds": seeds,
        "effect": effect(ours, theirs),
        "P(first is better)": improvement(ours, theirs, seed=SEED),
        "verdict": verdict(first, second, found, seeds),
    }


def verdict(first: str, second: str, found: Estimate, seeds: Estimate | None) -> str:
    """Who is better, where every interval of the difference leaves out 0."""
    if not all(one.decided for one in (found, seeds) if one is not None):
        return NONE
    better, worse = (first, second) if found.value > 0 else (second, first)
    return f"{better} is better than {worse}"


def row(pair: Pair) -> Row:
    """A pair in a table."""
    found, seeds, often = pair["difference"], pair["over seeds"], pair["P(first is better)"]
    assert isinstance(found, Estimate)
    assert isinstance(often, Estimate)
    return {
        "sides": " minus ".join(Path(str(pair[side])).name for side in ("first", "second")),
        "network value (95 % interval)": spread(found._asdict(), "+"),
        "over seeds": f"{seeds.low:+.3f} .. {seeds.high:+.3f}" if isinstance(seeds, Estimate) else "-",
        "effect": pair["effect"],
        "P(first is better)": spread(often._asdict()),
    }


def _plain(value: str | float | Estimate | None) -> object:
    return value._asdict() if isinstance(value, Estimate) else value


def _facts(side: Side, results: Sequence[Result], values: Array) -> Row:
    """A side, every number per run and episode."""
    return {
        "runs": [str(run) for run in side.runs],
        "seeds": [spec.seed for spec in side.specs],
        "mean": interval(values, seed=SEED)._asdict(),
        "iqm": iqm(values, seed=SEED)._asdict(),
        "seconds": [one.seconds for one in results],
        **{name: [getattr(one, name).tolist() for one in results] for name in MEASURED},
    }
