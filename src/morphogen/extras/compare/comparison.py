"""Comparison of sides: every run plays the same held-out instances, and pairs of sides get a
verdict.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.config.spec import RunSpec
from morphogen.device.transfers import Transfers
from morphogen.env.policies import TRAINED_PREFIX, build_arm
from morphogen.env.setup import build_setup
from morphogen.evaluation import bootstrap
from morphogen.evaluation.bootstrap import Array, Estimate
from morphogen.evaluation.play import ArmResult, evaluation_spec, play_arm
from morphogen.extras.compare.sides import Runs, read_sides
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.vocab.plain import read_count

NO_VERDICT = "no verdict"
BOOTSTRAP_SEED = 0
COMPARED_FIELDS = ("network_value", "committed_accuracy", "params", "param_epochs", "minibatches")
Row = dict[str, Any]


def compare(
    *runs: Path | str,
    episodes: int = 256,
    report: Callable[[str], None] = print,
    exchange: Exchange = ALONE,
) -> Row:
    """Compare runs that exist, as the command `compare` does: all of them play the same held-out
    instances.

    Args:
        runs: two or more sides, each a run directory or a folder of run directories with other
        training seeds.
        episodes: held-out episodes of every run.
        report: receives a line after each run.
        exchange: the processes that share the episodes.

    Returns: the numbers of `compare --json`: network values per run and episode, and under `pairs`,
    for the first side with each of the others, the difference with its intervals, the effect size
    and the verdict.
    Raises: ConfigError for sides that cannot be compared, CheckpointError for damaged policies.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {"preset": "tiny", "rounds": 1, "envs": 4, "final_episodes": 0}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for policy in ("wait", "random"):
        ...         result = mg.train_ppo_vectorized(
        ...             **fields, policy_name=policy, out=f"{folder}/{policy}"
        ...         )
        ...     numbers = mg.compare(
        ...         f"{folder}/wait", f"{folder}/random", episodes=2, report=lambda line: None
        ...     )
        >>> pair = numbers["pairs"][0]
        >>> round(pair["difference"]["value"], 3), pair["verdict"]
        (0.155, 'no verdict')
    """
    episodes = read_count("episodes", episodes)
    sides = read_sides(runs)
    first_name, *others = sides
    first_runs = list(sides[first_name].values())
    described: dict[str, Row] = {}
    values: dict[str, Array] = {}  # [R, n] by side
    for name, side in sides.items():
        results: list[ArmResult] = []
        # a pair of runs plays the instances of the seed of its first run
        for (run, spec), first in zip(side.items(), first_runs, strict=True):
            result = _play_run(run, spec, first, episodes, exchange)
            results.append(result)
            report(f"{run}: {episodes} episodes in {result.seconds:.1f} s")
        values[name] = np.stack([result.network_value for result in results])
        described[name] = _describe_side(side, results, values[name])
    return {
        "episodes": episodes,
        "seeds": [spec.seed for spec in first_runs],
        "sides": described,
        "pairs": [
            compare_pair(first_name, name, values[first_name], values[name]) for name in others
        ],
    }


def _play_run(
    run: Path, spec: RunSpec, first: RunSpec, episodes: int, exchange: Exchange
) -> ArmResult:
    """Play the policy of a run on the instances of the run `first`, a part in every process."""
    setup = build_setup(evaluation_spec(spec, seed=first.seed, envs=first.envs), exchange)
    transfers = Transfers(setup.device, time.perf_counter)
    with torch.no_grad():
        arm = build_arm(f"{TRAINED_PREFIX}{run}", setup)
        return play_arm(setup, transfers, arm, name=str(run), episodes=episodes)


def _describe_side(runs: Runs, results: Sequence[ArmResult], values: Array) -> Row:
    row: Row = {
        "runs": [str(run) for run in runs],
        "seeds": [spec.seed for spec in runs.values()],
        "mean": bootstrap.interval(values, seed=BOOTSTRAP_SEED)._asdict(),
        "iqm": bootstrap.iqm(values, seed=BOOTSTRAP_SEED)._asdict(),
        "seconds": [result.seconds for result in results],
    }
    for name in COMPARED_FIELDS:
        row[name] = [getattr(result, name).tolist() for result in results]
    return row


def compare_pair(first: str, second: str, first_values: Array, second_values: Array) -> Row:
    """Return the statistics of a pair of sides.  first_values, second_values: network values [R,
    n], paired.

    `over seeds`: interval over other training seeds, None with one seed; a verdict needs both
    intervals to exclude 0.
    """
    differences = first_values - second_values
    difference = bootstrap.interval(differences, seed=BOOTSTRAP_SEED)
    seeds = bootstrap.seed_interval(differences)
    better = bootstrap.improvement_probability(first_values, second_values, seed=BOOTSTRAP_SEED)
    return {
        "first": first,
        "second": second,
        "difference": difference._asdict(),
        "over seeds": None if seeds is None else seeds._asdict(),
        "effect": bootstrap.effect_size(first_values, second_values),
        "P(first is better)": better._asdict(),
        "verdict": verdict(first, second, difference, seeds),
    }


def verdict(first: str, second: str, difference: Estimate, seeds: Estimate | None) -> str:
    """Name the better side if every interval of the difference excludes 0."""
    if not (difference.excludes_zero and (seeds is None or seeds.excludes_zero)):
        return NO_VERDICT
    better, worse = (first, second) if difference.value > 0 else (second, first)
    return f"{better} is better than {worse}"


def pair_row(pair: Row) -> Row:
    """Return the row of a pair in a table."""
    seeds = pair["over seeds"]
    return {
        "sides": f"{Path(pair['first']).name} minus {Path(pair['second']).name}",
        "value (95 % interval)": bootstrap.format_estimate(pair["difference"], "+"),
        "over seeds": "-" if seeds is None else f"{seeds['low']:+.3f} .. {seeds['high']:+.3f}",
        "effect": pair["effect"],
        "P(first is better)": bootstrap.format_estimate(pair["P(first is better)"]),
    }
