"""Evaluate the policy of a run and other arms on the same held-out instances: statistics, tables, `evaluation.json`."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.config.spec import RIVALS, VALIDATION, RunSpec, SplitName, resolve
from morphogen.config.task import ANALYTIC
from morphogen.device.transfers import Transfers
from morphogen.engine.optimum import SHARE_TITLE
from morphogen.engine.policies import TRAINED_PREFIX
from morphogen.engine.setup import Setup, build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import open_arms, play_policy_arm
from morphogen.evaluation.bootstrap import Estimate, exceedance_profile, improvement_probability, interval, iqm
from morphogen.evaluation.play import ArmResult, share_table, shares_of_optimum
from morphogen.learn.exchange import ALONE, Exchange
from morphogen.storage import files, run_directory
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import read_count, to_plain

TRAINED_ARM = "trained"  # the policy of the run
PROFILE_STEP, PROFILE_POINTS = 0.05, 41  # of network value: both ends of a profile are multiples; points of a profile
Row = dict[str, Any]
Results = Mapping[str, ArmResult]


def evaluate(
    run: Path | str,
    names: Sequence[str] = RIVALS,
    *,
    episodes: int = 256,
    seed: int | None = None,
    greedy: bool = False,
    split: SplitName = VALIDATION,
    report: Callable[[str], None] = print,
    exchange: Exchange = ALONE,
) -> tuple[dict[str, list[Row]], Row]:
    """Play the policy of a run and other arms on the same held-out instances; write `evaluation.json`.

    A run directory that cannot be written to gets no file, and `report` receives a line.

    Args:
        run: run directory.
        names: arms beside the policy of the run: baselines, registered policies, `schedule:FILE`, `trained:PATH`,
            `static`, `static-cost`, `oracle:FILE`.
        episodes: held-out episodes per arm.
        seed: of the held-out instances; default: the seed of the run.
        greedy: the policy of the run takes its most likely actions.
        split: samples for accuracies, `validation` or `test`.
        report: receives a line after each arm.
        exchange: with other processes, which play a part each; the first one writes the file.

    Returns: tables by title, each a list of rows; and the contents of the file, with a number per episode and arm.
    Raises: ConfigError for unknown arms or a task without samples of the split, CheckpointError for a damaged policy.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(preset="whitebox", rounds=1, envs=4, final_episodes=0, policy_name="wait")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(spec, out=folder)
        ...     tables, contents = mg.evaluate(folder, ["random"], episodes=2, report=lambda line: None)
        >>> {arm: round(row["mean"]["value"], 3) for arm, row in contents["statistics"].items()}
        {'trained': 0.2, 'random': 0.045}
    """
    run, episodes = expand_path(run), read_count("episodes", episodes)
    seed, greedy = to_plain((seed, greedy))
    with run_directory.hold_directory(run) as folder:
        chosen: Any = {"seed": seed, "greedy": greedy, "split": split}
        tables, contents = _play_arms(run, names, episodes, **chosen, report=report, exchange=exchange)
        try:
            if exchange.first:
                files.write_atomic(folder.path / run_directory.EVALUATION, files.json_bytes(contents))
        except OSError as error:
            reason = files.error_line(error)
            report(f"{run_directory.EVALUATION} was not written: {folder.name} cannot be written to: {reason}")
    return tables, contents


def _play_arms(
    run: Path,
    names: Sequence[str],
    episodes: int,
    *,
    seed: int | None,
    greedy: bool,
    split: SplitName,
    report: Callable[[str], None],
    exchange: Exchange,
) -> tuple[dict[str, list[Row]], Row]:
    """Return the tables and the contents of the file of an evaluation."""
    _, spec, manifest = run_directory.open_directory(run)
    seed, trained = spec.seed if seed is None else seed, f"{TRAINED_PREFIX}{run}"
    setup = select_split(split, build_setup(evaluation_spec(spec, seed=seed, envs=spec.envs), exchange))
    players = open_arms((trained, *names), setup, report)
    del players[trained]
    own = partial(play_policy_arm, trained, label=TRAINED_ARM, greedy=greedy)
    players = {TRAINED_ARM: own, **players}
    transfers = Transfers(setup.device, time.perf_counter)
    results: dict[str, ArmResult] = {}
    with torch.no_grad():
        for name, player in players.items():
            results[name] = player(setup, transfers, episodes, results)
            report(f"{name}: {episodes} episodes in {results[name].seconds:.1f} s")
        shares = shares_of_optimum(setup, transfers, tuple(results.values()))
    statistics = {name: arm_statistics(arm, results[TRAINED_ARM], seed=seed) for name, arm in results.items()}
    contents: Row = {
        "run_id": manifest["run_id"],
        "greedy": greedy,
        "split": split,
        "episodes": episodes,
        "seed": seed,
        "arms": {name: {**result.per_episode(), **result.costs()} for name, result in results.items()},
        "statistics": statistics,
        "profiles": performance_profiles({name: arm.network_value for name, arm in results.items()}, seed=seed),
        **({"share_of_optimal": shares} if shares else {}),
    }
    tables = evaluation_tables(results, statistics, split)
    if shares:
        tables[SHARE_TITLE] = share_table({_short_name(name): share for name, share in shares.items()})
    return tables, contents


def evaluation_spec(spec: RunSpec, *, seed: int, envs: int) -> RunSpec:
    """Spec for an evaluation: seed and envs set the worlds, so that both runs of a pair see the same worlds."""
    return resolve(replace(spec, seed=seed, envs=envs, ppo=replace(spec.ppo, minibatches=None)))


def select_split(split: SplitName, setup: Setup) -> Setup:
    """Setup with accuracies on the samples of a split; raise ConfigError for a task without samples."""
    if split == VALIDATION:
        return setup
    if setup.task.kind == ANALYTIC:
        raise ConfigError(f"--split: expected {VALIDATION}, because task {setup.task.name} has no samples, got {split}")
    return replace(setup, dataset=setup.dataset.on_test_split())


def arm_statistics(result: ArmResult, reference: ArmResult, *, seed: int) -> dict[str, Row | None]:
    """Network value: mean, interquartile mean, difference of the reference, and how often the reference is better."""
    ours, theirs = reference.network_value, result.network_value
    paired = result is not reference
    estimates = {
        "mean": interval(theirs, seed=seed),
        "iqm": iqm(theirs, seed=seed),
        "difference": interval(ours - theirs, seed=seed) if paired else None,
        "improvement": improvement_probability(ours, theirs, seed=seed) if paired else None,
    }
    return {name: None if estimate is None else estimate._asdict() for name, estimate in estimates.items()}


def performance_profiles(values: Mapping[str, np.ndarray[Any, Any]], *, seed: int) -> Row:
    """Share of episodes with a network value above tau, for each arm [n], over a common grid."""
    low, high = min(map(np.min, values.values())), max(map(np.max, values.values()))
    ends = (PROFILE_STEP * math.floor(float(low) / PROFILE_STEP), PROFILE_STEP * math.ceil(float(high) / PROFILE_STEP))
    grid = np.linspace(*ends, PROFILE_POINTS)
    profiles = {name: exceedance_profile(numbers, grid, seed=seed) for name, numbers in values.items()}
    arms = {
        name: {end: [getattr(point, end) for point in profile] for end in Estimate._fields}
        for name, profile in profiles.items()
    }
    return {"tau": grid.tolist(), "arms": arms}


def evaluation_tables(
    results: Results, statistics: Mapping[str, Mapping[str, Row | None]], split: SplitName
) -> dict[str, list[Row]]:
    """Title -> a row per arm: values, and costs."""
    values: list[Row] = []
    costs: list[Row] = []
    for name, result in results.items():
        texts = {
            statistic: "" if estimate is None else format_estimate(estimate, "+" if statistic == "difference" else "")
            for statistic, estimate in statistics[name].items()
        }
        values.append(
            {
                "arm": _short_name(name),
                f"{result.value_name} (95 % interval)": texts["mean"],
                "interquartile mean": texts["iqm"],
                f"{TRAINED_ARM} minus arm": texts["difference"],
            }
        )
        costs.append(
            {
                "arm": _short_name(result.policy),
                f"P({TRAINED_ARM} is better)": texts["improvement"],
                "accuracy %": float(result.committed_accuracy.mean()),
                "parameters": round(float(result.params.mean())),
                "parameter-epochs": round(float(result.param_epochs.mean())),
                "minibatches": round(float(result.minibatches.mean())),
                "seconds": float(result.seconds),
            }
        )
    title = f"{len(results[TRAINED_ARM].network_value)} held-out instances, the same for every arm; {split} samples"
    return {title: values, "means per instance; seconds in total": costs}


def _short_name(name: str) -> str:
    head, colon, place = name.rpartition(":")
    return f"{head}{colon}{Path(place).name}"


def format_estimate(estimate: Mapping[str, float], sign: str = "") -> str:
    """`0.700 (0.650 .. 0.750)`."""
    value, low, high = (format(estimate[name], f"{sign}.3f") for name in Estimate._fields)
    return f"{value} ({low} .. {high})"
