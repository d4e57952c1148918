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
from morphogen.evaluation.arms import named, players
from morphogen.evaluation.bootstrap import Estimate, improvement, interval, iqm, profile
from morphogen.evaluation.final_evaluation import share_table, shares
from morphogen.evaluation.play import Result
from morphogen.storage import atomic_write, run_directory

OWN = "trained"  # the policy of the run
STEP, POINTS = 0.05, 41  # of network value: profiles begin and end at a multiple; points of a profile
SIGNS = {"difference": "+"}  # numbers that are written with their sign
Row = dict[str, Any]
Results = Mapping[str, Result]


def evaluate(
    run: Path,
    names: Sequence[str],
    *,
    episodes: int,
    seed: int | None = None,
    greedy: bool = False,
    split: str = VALIDATION,
    told: Callable[[str], None] = print,
) -> tuple[dict[str, list[Row]], Row]:
    """Play, and write `evaluation.json` in the run directory; the tables and what the file holds.

    `seed` of the held-out instances: default that of the run; `greedy`: the policy of the run takes its likeliest
    action; `split`: of the samples, `validation` or `test`.  `told` hears of every arm that is done.
    """
    folder, spec, said = run_directory.open_directory(run)
    run_directory.check_writable("RUN", run)
    setup = on(split, build_setup(judged(spec, seed=spec.seed if seed is None else seed, envs=spec.envs)))
    rivals = players((f"{TRAINED_PREFIX}{run}", *names), setup)
    rivals.pop(f"{TRAINED_PREFIX}{run}")
    all_of_them = {OWN: partial(named, f"{TRAINED_PREFIX}{run}", label=OWN, mode=greedy), **rivals}
    fences, results = Transfers(setup.device, time.perf_counter), {}
    with torch.no_grad():
        for name, player in all_of_them.items():
            results[name] = player(setup, fences, episodes, results)
            told(f"{name}: {episodes} episodes in {results[name].seconds:.1f} s")
        reached = shares(setup, fences, tuple(results.values()))
    found = {"run_id": said["run_id"], "greedy": greedy, "split": split, **_facts(setup, results, episodes)}
    if reached:
        found["share_of_optimal"] = reached
    atomic_write.write_atomic(folder.path / run_directory.EVALUATION, atomic_write.json_bytes(found))
    best = {SHARE_TITLE: share_table({_short(name): share for name, share in reached.items()})} if reached else {}
    return {**tables(results, found["statistics"], split), **best}, found


def judged(spec: RunSpec, *, seed: int, envs: int) -> RunSpec:
    """A run as it is evaluated: seed and envs decide the worlds, so that two runs of one pair meet the same."""
    return resolve(replace(spec, seed=seed, envs=envs, ppo=replace(spec.ppo, minibatches=None)))


def on(split: str, setup: Setup) -> Setup:
    """A setup whose envs are judged on these samples, epoch by epoch; a ConfigError where there are none."""
    if split == VALIDATION:
        return setup
    if is_known(setup):
        raise ConfigError(f"--split is {split}; want {VALIDATION}, because the task {setup.task.name} has no samples")
    return replace(setup, dataset=setup.dataset.on_test_split())


def _facts(setup: Setup, results: Results, episodes: int) -> Row:
    seed = setup.spec.seed
    return {
        "episodes": episodes,
        "seed": seed,
        "arms": {name: {**one.plain(), **one.costs()} for name, one in results.items()},
        "statistics": {name: statistics(one, results[OWN], seed=seed) for name, one in results.items()},
        "profiles": profiles({name: one.network_value for name, one in results.items()}, seed=seed),
    }


def statistics(one: Result, own: Result, *, seed: int) -> dict[str, Row | None]:
    """Network value: mean, interquartile mean, and of the run's own policy how much and how often it is better."""
    pair = (own.network_value, one.network_value)
    found = {"mean": interval(one.network_value, seed=seed), "iqm": iqm(one.network_value, seed=seed)}
    behind = None if one is own else interval(pair[0] - pair[1], seed=seed)
    better = None if one is own else improvement(*pair, seed=seed)
    every = {**found, "difference": behind, "improvement": better}
    return {name: None if value is None else value._asdict() for name, value in every.items()}


def profiles(values: Mapping[str, np.ndarray[Any, Any]], *, seed: int) -> Row:
    """The share of episodes with a network value above tau, for each arm [n], over a common grid."""
    ends = [float(find([find(one) for one in values.values()])) for find in (np.min, np.max)]
    grid = np.linspace(STEP * math.floor(ends[0] / STEP), STEP * math.ceil(ends[1] / STEP), POINTS)
    found = {name: profile(one, grid, seed=seed) for name, one in values.items()}
    bands = {name: {end: [getattr(at, end) for at in one] for end in Estimate._fields} for name, one in found.items()}
    return {"tau": grid.tolist(), "arms": bands}


def tables(results: Results, found: Mapping[str, Mapping[str, Row | None]], split: str) -> dict[str, list[Row]]:
    """Title -> a row per arm: what was reached, and what it took."""
    shown = {name: _shown(one) for name, one in found.items()}
    title = f"{len(results[OWN].network_value)} held-out instances, the same for every arm; {split} samples"
    return {
        title: [_reached(name, shown[name]) for name in results],
        "means of an instance; seconds of all": [_cost(one, shown[name]) for name, one in results.items()],
    }


def _shown(found: Mapping[str, Row | None]) -> dict[str, str]:
    return {name: "" if one is None else spread(one, SIGNS.get(name, "")) for name, one in found.items()}


def _reached(name: str, shown: Mapping[str, str]) -> Row:
    return {
        "arm": _short(name),
        "network value (95 % interval)": shown["mean"],
        "interquartile mean": shown["iqm"],
        f"{OWN} minus it": shown["difference"],
    }


def _short(name: str) -> str:
    """The name of an arm in a table: of a file without its folders."""
    head, colon, place = name.rpartition(":")
    return f"{head}{colon}{Path(place).name}"


def _cost(one: Result, shown: Mapping[str, str]) -> Row:
    return {
        "arm": _short(one.policy),
        f"P({OWN} is better)": shown["improvement"],
        "accuracy %": float(one.committed_accuracy.mean()),
        "parameters": round(float(one.params.mean())),
        "parameter-epochs": round(float(one.param_epochs.mean())),
        "minibatches": round(float(one.minibatches.mean())),
        "seconds": float(one.seconds),
    }


def spread(found: Mapping[str, float], sign: str = "") -> str:
    """`0.700 (0.650 .. 0.750)`."""
    value, low, high = (format(found[name], f"{sign}.3f") for name in Estimate._fields)
    return f"{value} ({low} .. {high})"
