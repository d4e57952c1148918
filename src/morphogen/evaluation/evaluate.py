"""`morphogen evaluate`: the policy of a run and its rivals on the same held-out instances, and what follows."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.config.spec import VALIDATION, RunSpec, resolve
from morphogen.device.transfers import Transfers
from morphogen.engine.optimum import SHARE_TITLE, is_known
from morphogen.engine.policies import TRAINED_PREFIX
from morphogen.engine.setup import Setup, build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import open_arms, play_policy_arm
from morphogen.evaluation.bootstrap import Estimate, exceedance_profile, improvement_probability, interval, iqm
from morphogen.evaluation.final_evaluation import share_table, shares_of_optimum
from morphogen.evaluation.play import ArmResult
from morphogen.storage import atomic_write, run_directory

TRAINED_ARM = "trained"  # the policy of the run
PROFILE_STEP, PROFILE_POINTS = 0.05, 41  # of network value: profiles begin and end at a multiple; points of a profile
SIGN_FORMATS = {"difference": "+"}  # numbers that are written with their sign
Row = dict[str, Any]
Results = Mapping[str, ArmResult]


def evaluate(
    run: Path,
    names: Sequence[str],
    *,
    episodes: int,
    seed: int | None = None,
    greedy: bool = False,
    split: str = VALIDATION,
    report: Callable[[str], None] = print,
) -> tuple[dict[str, list[Row]], Row]:
    """Play, and write `evaluation.json` in the run directory; the tables and what the file holds.

    `seed` of the held-out instances: default that of the run; `greedy`: the policy of the run takes its likeliest
    action; `split`: of the samples, `validation` or `test`.  `told` hears of every arm that is done.
    """
    folder, spec, said = run_directory.open_directory(run)
    run_directory.check_writable("RUN", run)
    setup = select_split(
        split, build_setup(evaluation_spec(spec, seed=spec.seed if seed is None else seed, envs=spec.envs))
    )
    rivals = open_arms((f"{TRAINED_PREFIX}{run}", *names), setup)
    rivals.pop(f"{TRAINED_PREFIX}{run}")
    all_of_them = {
        TRAINED_ARM: partial(play_policy_arm, f"{TRAINED_PREFIX}{run}", label=TRAINED_ARM, greedy=greedy),
        **rivals,
    }
    fences, results = Transfers(setup.device, time.perf_counter), {}
    with torch.no_grad():
        for name, player in all_of_them.items():
            results[name] = player(setup, fences, episodes, results)
            report(f"{name}: {episodes} episodes in {results[name].seconds:.1f} s")
        reached = shares_of_optimum(setup, fences, tuple(results.values()))
    found = {"run_id": said["run_id"], "greedy": greedy, "split": split, **_evaluation_facts(setup, results, episodes)}
    if reached:
        found["share_of_optimal"] = reached
    atomic_write.write_atomic(folder.path / run_directory.EVALUATION, atomic_write.json_bytes(found))
    best = {SHARE_TITLE: share_table({_short_name(name): share for name, share in reached.items()})} if reached else {}
    return {**evaluation_tables(results, found["statistics"], split), **best}, found


def evaluation_spec(spec: RunSpec, *, seed: int, envs: int) -> RunSpec:
    """A run as it is evaluated: seed and envs decide the worlds, so that two runs of one pair meet the same."""
    return resolve(replace(spec, seed=seed, envs=envs, ppo=replace(spec.ppo, minibatches=None)))


def select_split(split: str, setup: Setup) -> Setup:
    """A setup whose envs are judged on these samples, epoch by epoch; a ConfigError where there are none."""
    if split == VALIDATION:
        return setup
    if is_known(setup):
        raise ConfigError(f"--split is {split}; want {VALIDATION}, because the task {setup.task.name} has no samples")
    return replace(setup, dataset=setup.dataset.on_test_split())


def _evaluation_facts(setup: Setup, results: Results, episodes: int) -> Row:
    seed = setup.spec.seed
    return {
        "episodes": episodes,
        "seed": seed,
        "arms": {name: {**one.per_episode(), **one.costs()} for name, one in results.items()},
        "statistics": {name: arm_statistics(one, results[TRAINED_ARM], seed=seed) for name, one in results.items()},
        "profiles": performance_profiles({name: one.network_value for name, one in results.items()}, seed=seed),
    }


def arm_statistics(result: ArmResult, reference: ArmResult, *, seed: int) -> dict[str, Row | None]:
    """Network value: mean, interquartile mean, and of the run's own policy how much and how often it is better."""
    pair = (reference.network_value, result.network_value)
    found = {"mean": interval(result.network_value, seed=seed), "iqm": iqm(result.network_value, seed=seed)}
    behind = None if result is reference else interval(pair[0] - pair[1], seed=seed)
    better = None if result is reference else improvement_probability(*pair, seed=seed)
    every = {**found, "difference": behind, "improvement": better}
    return {name: None if value is None else value._asdict() for name, value in every.items()}


def performance_profiles(values: Mapping[str, np.ndarray[Any, Any]], *, seed: int) -> Row:
    """The share of episodes with a network value above tau, for each arm [n], over a common grid."""
    ends = [float(find([find(one) for one in values.values()])) for find in (np.min, np.max)]
    grid = np.linspace(
        PROFILE_STEP * math.floor(ends[0] / PROFILE_STEP),
        PROFILE_STEP * math.ceil(ends[1] / PROFILE_STEP),
        PROFILE_POINTS,
    )
    found = {name: exceedance_profile(one, grid, seed=seed) for name, one in values.items()}
    bands = {name: {end: [getattr(at, end) for at in one] for end in Estimate._fields} for name, one in found.items()}
    return {"tau": grid.tolist(), "arms": bands}


def evaluation_tables(
    results: Results, statistics: Mapping[str, Mapping[str, Row | None]], split: str
) -> dict[str, list[Row]]:
    """Title -> a row per arm: what was reached, and what it took."""
    shown = {name: _format_statistics(one) for name, one in statistics.items()}
    title = f"{len(results[TRAINED_ARM].network_value)} held-out instances, the same for every arm; {split} samples"
    return {
        title: [_value_row(name, shown[name]) for name in results],
        "means of an instance; seconds of all": [_cost_row(one, shown[name]) for name, one in results.items()],
    }


def _format_statistics(statistics: Mapping[str, Row | None]) -> dict[str, str]:
    return {
        name: "" if one is None else format_estimate(one, SIGN_FORMATS.get(name, ""))
        for name, one in statistics.items()
    }


def _value_row(name: str, texts: Mapping[str, str]) -> Row:
    return {
        "arm": _short_name(name),
        "network value (95 % interval)": texts["mean"],
        "interquartile mean": texts["iqm"],
        f"{TRAINED_ARM} minus it": texts["difference"],
    }


def _short_name(name: str) -> str:
    """The name of an arm in a table: of a file without its folders."""
    head, colon, place = name.rpartition(":")
    return f"{head}{colon}{Path(place).name}"


def _cost_row(result: ArmResult, texts: Mapping[str, str]) -> Row:
    return {
        "arm": _short_name(result.policy),
        f"P({TRAINED_ARM} is better)": texts["improvement"],
        "accuracy %": float(result.committed_accuracy.mean()),
        "parameters": round(float(result.params.mean())),
        "parameter-epochs": round(float(result.param_epochs.mean())),
        "minibatches": round(float(result.minibatches.mean())),
        "seconds": float(result.seconds),
    }


def format_estimate(estimate: Mapping[str, float], sign: str = "") -> str:
    """`0.700 (0.650 .. 0.750)`."""
    value, low, high = (format(estimate[name], f"{sign}.3f") for name in Estimate._fields)
    return f"{value} ({low} .. {high})"
