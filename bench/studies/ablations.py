"""Worth of the settings of a preset: `python -m bench.studies.ablations RUN... [--json FILE] [--table]`.

The first run sets the base.  Other runs are grouped by the settings in which they differ from it, at least two of each,
and judged on the same held-out instances.  A change counts as better or worse only where both intervals of its
difference leave out 0: that over instances, and that of Welch over training seeds.  `--table` prints the table of
bench/README.md out of the JSON file, after reading the runs if any are named.
"""

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness.harvest import Array, EvaluatedRun, duplicate_seeds, learning_settings, load_runs, run_study
from morphogen.cli.bench import machine_facts
from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import raise_all, to_settings
from morphogen.config.spec import RunSpec
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.evaluation.bootstrap import Estimate, interval, student_t_quantile
from morphogen.evaluation.evaluate import TRAINED_ARM, format_estimate
from morphogen.storage import files

FILE = Path(__file__).parents[1] / "results" / "ablations.json"
SEED = 0  # of the resamples
DIGITS = 5
ROUNDING = 1e-6  # by which whole degrees of freedom may come out too small
Row = dict[str, Any]


def build_results(runs: Sequence[EvaluatedRun]) -> Row:
    """All that the file holds."""
    groups: dict[RunSpec, list[EvaluatedRun]] = {}
    for run in runs:
        groups.setdefault(learning_settings(run.spec), []).append(run)
    raise_all([line for group in groups.values() for line in duplicate_seeds(group)])
    (spec, base), *others = groups.items()
    if not others:
        raise ConfigError(f"all {len(runs)} runs have the settings of {base[0].path}; want others too")
    raise_all(
        [
            f"1 of {len(runs)} runs has the settings of {group[0].path}; want at least 2 with different seeds"
            for group in groups.values()
            if len(group) < 2
        ]
    )
    threads = base[0].spec.engine.threads or os.cpu_count() or 1
    return {
        "machine": machine_facts(device=base[0].device, threads=threads),
        "task": spec.task,
        "preset": spec.preset,
        "episodes": base[0].evaluation["episodes"],
        "unchanged": summarise_runs(base),
        "changes": [
            {
                "settings": settings_diff(spec, other),
                **summarise_runs(group),
                **compare_to_base(network_values(group), network_values(base)),
            }
            for other, group in others
        ],
    }


def network_values(runs: Sequence[EvaluatedRun]) -> Array:
    """Network value of the trained policies, rounded: float [R, n]."""
    return np.concatenate([run.arms[TRAINED_ARM]["network_value"] for run in runs]).round(DIGITS)


def summarise_runs(runs: Sequence[EvaluatedRun]) -> Row:
    """Runs of the same settings: how they were made, network value with its interval over instances, and its means."""
    rows = network_values(runs)
    return {
        "runs": [run.facts for run in runs],
        "mean": interval(rows.mean(axis=0), seed=SEED)._asdict(),
        "means": rows.mean(axis=1).round(DIGITS).tolist(),
        "params": float(np.mean([run.arms[TRAINED_ARM]["params"].mean() for run in runs])),
        "network_value": rows.tolist(),
    }


def settings_diff(base: RunSpec, other: RunSpec) -> Row:
    """The settings in which two runs differ: path -> what it was and what it became."""
    before, after = (dict(flatten_settings(to_settings(spec))) for spec in (base, other))
    return {path: [before.get(path), after.get(path)] for path in after if before.get(path) != after.get(path)}


def compare_to_base(changed: Array, base: Array) -> Row:
    """Difference of a change to the base, on means over the runs of each: network values [C, n] and [R, n]."""
    found = interval(changed.mean(axis=0) - base.mean(axis=0), seed=SEED)
    seeds = over_seeds(changed, base)
    decided = found.excludes_zero and seeds.excludes_zero
    return {
        "difference": found._asdict(),
        "over_seeds": seeds._asdict(),
        "verdict": ("better" if found.value > 0 else "worse") if decided else "no verdict",
    }


def over_seeds(changed: Array, base: Array) -> Estimate:
    """The difference of the means over runs, with Welch's interval: every group has its own scatter.

    Degrees of freedom are rounded down, which widens the interval.
    """
    middle = float(changed.mean() - base.mean())
    spreads = [(group.mean(axis=1).var(ddof=1) / len(group), len(group) - 1) for group in (changed, base)]
    error = sum(spread for spread, _ in spreads)
    if error == 0:
        return Estimate(middle, middle, middle)
    freedom = error**2 / sum(spread**2 / free for spread, free in spreads)
    room = student_t_quantile(math.floor(freedom + ROUNDING)) * math.sqrt(error)
    return Estimate(middle, float(middle - room), float(middle + room))


def markdown(results: Row) -> str:
    """The table of bench/README.md."""
    base, value = results["unchanged"], TASKS[results["task"]].value_name
    lines = [
        f"| changed | runs | {value} (95 % interval) | minus unchanged | over seeds | parameters |",
        "|---|---|---|---|---|---|",
        _table_row("nothing", base),
        *(_table_row(_format_settings(one["settings"]), one) for one in results["changes"]),
    ]
    return "\n".join(lines)


def _format_settings(settings: Row) -> str:
    return "`" + ", ".join(f"{path}={json.dumps(after)}" for path, (_, after) in settings.items()) + "`"


def _table_row(label: str, one: Row) -> str:
    behind = seeds = ""
    if "difference" in one:
        behind, ends = format_estimate(one["difference"], "+"), one["over_seeds"]
        seeds = f"{ends['low']:+.3f} .. {ends['high']:+.3f}"
    return (
        f"| {label} | {len(one['runs'])} | {format_estimate(one['mean'])} | {behind} | {seeds} | {one['params']:,.0f} |"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Write the file and print what is asked for; exit code 2 where runs cannot be compared."""
    own = argparse.ArgumentParser("python -m bench.studies.ablations", description=__doc__)
    own.add_argument("--json", type=Path, default=FILE, help="default %(default)s")
    run_study(own, words, minimum="three", collect=_build_files, format_table=markdown)


def _build_files(args: argparse.Namespace) -> dict[Path, bytes]:
    return {args.json: files.json_bytes(build_results(load_runs(args.runs)))}


if __name__ == "__main__":
    main()
