"""Worth of the settings of a preset: `python -m bench.studies.ablations RUN... [--json FILE]
[--table]`.

The first run sets the base.  Other runs are grouped by the settings in which they differ from it,
at least two of each, and judged on the same held-out instances.  A change counts as better or worse
only where both intervals of its
difference leave out 0: over instances, and Welch's over training seeds.  `--add` holds
further runs against the unchanged ones of the JSON file, if those are of a preset.  `--table`
prints the table of bench/README.md out of the JSON file, after reading the runs if any are named.
"""

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.harness.harvest import (
    Array,
    EvaluatedRun,
    check_same_arms,
    common_arms,
    learning_settings,
    load_runs,
    preset_settings,
    read_results,
    run_study,
    settings_diff,
)
from bench.harness.machine import machine_facts
from morphogen.config import files
from morphogen.config.fields import raise_all
from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.evaluation.bootstrap import Estimate, format_estimate, interval, student_t_quantile
from morphogen.evaluation.play import TRAINED_ARM

FILE = Path(__file__).parents[1] / "results" / "ablations.json"
SEED = 0  # of the resamples
DIGITS = 5
SAME_ARMS = ("wait",)  # that no setting of a policy matters for
ROUNDING = 1e-6  # by which whole degrees of freedom may come out too small
Row = dict[str, Any]


class Played(NamedTuple):
    """A run on the held-out instances, as the file keeps it."""

    facts: Row
    params: float
    network_value: Array  # float [n], rounded


# settings that differ from the base, as JSON -> runs; the base comes first
Groups = dict[str, list[Played]]


def build_results(runs: Sequence[EvaluatedRun]) -> Row:
    """All that the file holds."""
    first, base = runs[0], learning_settings(runs[0].spec)
    threads = first.spec.engine.threads or os.cpu_count() or 1
    return {
        "machine": machine_facts(device=first.device, threads=threads),
        "settings": first.settings,
        "base": settings_diff(preset_settings(first.spec.preset), base),
        "arms": _common_values(runs),
        **compare_groups(group_runs(runs, base)),
    }


def _common_values(runs: Sequence[EvaluatedRun]) -> Row:
    """Network value of the arms that no change matters for: what runs that are added have to agree
    with.
    """
    return {
        name: arm["network_value"][0].tolist() for name, arm in common_arms(runs, SAME_ARMS).items()
    }


def add_runs(kept: Row, runs: Sequence[EvaluatedRun]) -> Row:
    """Results with further runs, of changes that they hold or of others.

    Raises: ConfigError where the unchanged runs are not a preset's, which the settings of
    runs are held against; where no arm played in both, or one ended in other values, as on another
    kind of processor.
    """
    raise_all(
        [
            f"the unchanged runs of the results have another {path} than their preset"
            for path in kept["base"]
        ]
    )
    check_same_arms(kept["arms"], common_arms(runs, SAME_ARMS), runs[0].path)
    groups = {
        _settings_key(one["settings"]): _kept_runs(one)
        for one in (kept["unchanged"], *kept["changes"])
    }
    for key, group in group_runs(runs, preset_settings(kept["settings"]["preset"])).items():
        groups.setdefault(key, []).extend(group)
    return {**kept, "arms": {**_common_values(runs), **kept["arms"]}, **compare_groups(groups)}


def group_runs(runs: Sequence[EvaluatedRun], base: RunSpec) -> Groups:
    """Runs by the settings in which they differ from the base."""
    groups: Groups = {}
    for run in runs:
        arm, key = (
            run.arms[TRAINED_ARM],
            _settings_key(settings_diff(base, learning_settings(run.spec))),
        )
        one = Played(run.facts, float(arm["params"].mean()), arm["network_value"][0].round(DIGITS))
        groups.setdefault(key, []).append(one)
    return groups


def _settings_key(settings: Row) -> str:
    return json.dumps(settings, sort_keys=True)


def _kept_runs(group: Row) -> list[Played]:
    return [
        Played(facts, group["params"], np.array(values))
        for facts, values in zip(group["runs"], group["network_value"], strict=True)
    ]


def compare_groups(groups: Groups) -> Row:
    """The unchanged runs, and every change beside them."""
    raise_all(
        [line for key, group in groups.items() for line in _group_faults(json.loads(key), group)]
    )
    base, *changes = [summarise_runs(json.loads(key), group) for key, group in groups.items()]
    if not changes:
        raise ConfigError(f"all {len(base['runs'])} runs have the same settings; want others too")
    return {
        "unchanged": base,
        "changes": [{**one, **compare_to_base(one, base)} for one in changes],
    }


def _group_faults(settings: Row, group: Sequence[Played]) -> list[str]:
    """A line for every seed that runs of the same settings have in common, and one for a run
    alone.
    """
    name, seeds = _format_settings(settings), [run.facts["seed"] for run in group]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    alone = [f"{name}: 1 run; want at least 2 with different seeds"] if len(group) < 2 else []
    return alone + [
        f"{name}: {seeds.count(seed)} runs have seed {seed}; want each seed once" for seed in twice
    ]


def summarise_runs(settings: Row, group: Sequence[Played]) -> Row:
    """Runs of the same settings: how they were made, network value with its interval over
    instances, and its means.
    """
    rows = np.stack([run.network_value for run in group])
    return {
        "settings": settings,
        "runs": [run.facts for run in group],
        "mean": interval(rows.mean(axis=0), seed=SEED)._asdict(),
        "means": rows.mean(axis=1).round(DIGITS).tolist(),
        "params": float(np.mean([run.params for run in group])),
        "network_value": rows.tolist(),
    }


def compare_to_base(change: Row, unchanged: Row) -> Row:
    """Difference of a change to the base, on means over the runs of each."""
    changed, base = (np.array(one["network_value"]) for one in (change, unchanged))
    found = interval(changed.mean(axis=0) - base.mean(axis=0), seed=SEED)
    seeds = over_seeds(changed, base)
    decided = found.excludes_zero and seeds.excludes_zero
    return {
        "difference": found._asdict(),
        "over_seeds": seeds._asdict(),
        "verdict": ("better" if found.value > 0 else "worse") if decided else "no verdict",
    }


def over_seeds(changed: Array, base: Array) -> Estimate:
    """The difference of the means over runs, with Welch's interval: every group has its own
    scatter.

    Degrees of freedom are rounded down, which widens the interval.
    """
    middle = float(changed.mean() - base.mean())
    spreads = [
        (group.mean(axis=1).var(ddof=1) / len(group), len(group) - 1) for group in (changed, base)
    ]
    error = sum(spread for spread, _ in spreads)
    if error == 0:
        return Estimate(middle, middle, middle)
    freedom = error**2 / sum(spread**2 / free for spread, free in spreads)
    room = student_t_quantile(math.floor(freedom + ROUNDING)) * math.sqrt(error)
    return Estimate(middle, float(middle - room), float(middle + room))


def markdown(results: Row) -> str:
    """The table of bench/README.md."""
    value = TASKS[results["settings"]["task"]].value_name
    lines = [
        f"| changed | runs | {value} (95 % interval) | minus unchanged | over seeds | parameters |",
        "|---|---|---|---|---|---|",
        *map(_table_row, (results["unchanged"], *results["changes"])),
    ]
    return "\n".join(lines)


def _format_settings(settings: Row) -> str:
    """Label of the settings that differ, such as `max_seeds=2`, in backticks; "nothing" for
    none.
    """
    if not settings:
        return "nothing"
    return (
        "`"
        + ", ".join(f"{path}={json.dumps(after)}" for path, (_, after) in settings.items())
        + "`"
    )


def _table_row(one: Row) -> str:
    label = _format_settings(one["settings"])
    behind = seeds = ""
    if "difference" in one:
        behind, ends = format_estimate(one["difference"], "+"), one["over_seeds"]
        seeds = f"{ends['low']:+.3f} .. {ends['high']:+.3f}"
    return (
        f"| {label} | {len(one['runs'])} | {format_estimate(one['mean'])} | {behind} | {seeds} "
        f"| {one['params']:,.0f} |"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Write the file and print what is asked for; exit code 2 where runs cannot be compared."""
    own = argparse.ArgumentParser("python -m bench.studies.ablations", description=__doc__)
    own.add_argument("--json", type=Path, default=FILE, help="default %(default)s")
    run_study(own, words, minimum="three", collect=_build_files, format_table=markdown)


def _build_files(args: argparse.Namespace) -> dict[Path, bytes]:
    runs = load_runs(args.runs)
    if not args.add:
        return {args.json: files.json_bytes(build_results(runs))}
    kept = read_results(args.json, runs, keys=("base", "arms", "unchanged", "changes"))
    return {args.json: files.json_bytes(add_runs(kept, runs))}


if __name__ == "__main__":
    main()
