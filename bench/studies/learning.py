"""Learning of the policy: `python -m bench.studies.learning RUN... [--json FILE] [--picture FILE]
[--table]`.

The runs were trained with different seeds and evaluated on the same held-out instances.  The
results are every arm with its intervals, the difference of the trained policy to each, its share of
the way from never growing to the oracle, and the learning curves.  `--table` prints the table
of bench/README.md out of the JSON file, after reading the runs if any are named.  `--add` adds arms
that played beside other runs of the same preset, and that no policy matters for.

All runs play the same instances, so a resample draws instances, each for all runs at once: an
instance that is hard for all runs counts once.  The scatter over training seeds is reported
separately (`over_seeds`).
"""

import argparse
import io
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from bench.harness.harvest import (
    Array,
    EvaluatedRun,
    check_same_arms,
    common_arms,
    learning_settings,
    load_seed_runs,
    preset_settings,
    read_results,
    run_study,
    settings_diff,
    stack_arms,
)
from bench.harness.machine import machine_facts
from morphogen.config import files
from morphogen.config.fields import raise_all
from morphogen.config.task import TASKS
from morphogen.evaluation.bootstrap import (
    Estimate,
    draw_resamples,
    format_estimate,
    interval,
    iqm,
    resample_count,
    resample_iqms,
    resample_means,
    seed_interval,
    tail_shares,
)
from morphogen.evaluation.play import TRAINED_ARM
from morphogen.log.kinds.run import HeldOutPlayed

RESULTS = Path(__file__).parents[1] / "results"
FILE, PICTURE = RESULTS / "learning.json", RESULTS / "learning.svg"
# Both ends of a gap: the arms of which the best is its lower end, and its upper end; the first that
# played counts.
GAPS = ((("planted", "open", "reactive"), "clairvoyant"), (("wait",), "oracle"))
SEED = 0  # of the resamples
MEANS = {
    "accuracy": "committed_accuracy",
    **{name: name for name in ("params", "param_epochs", "minibatches")},
}
Row = dict[str, Any]


def build_results(runs: Sequence[EvaluatedRun]) -> Row:
    """All that the file holds."""
    first = runs[0]
    threads = first.spec.engine.threads or os.cpu_count() or 1
    arms = {name: summarise_arm(one) for name, one in stack_arms(runs).items()}
    return {
        "machine": machine_facts(device=first.device, threads=threads),
        "settings": first.settings,
        "base": run_base(first),
        "runs": [run.facts for run in runs],
        "added": [],
        **compare_arms(arms, [run.spec.seed for run in runs]),
        "arms": arms,
        "curves": learning_curves(runs),
    }


def run_base(run: EvaluatedRun) -> Row:
    """The settings of a run that differ from its preset: path -> what that has, and what the
    run has.
    """
    return settings_diff(preset_settings(run.spec.preset), learning_settings(run.spec))


def add_arms(kept: Row, runs: Sequence[EvaluatedRun]) -> Row:
    """Results with the arms that played beside further runs, and that are not of a run.

    Raises: ConfigError where a run has other settings than the results, but for its
    rounds; no arm in common with them; or another value of it.
    """
    base, other = kept["base"], run_base(runs[0])
    paths = [
        path for path in {**base, **other} if path != "rounds" and base.get(path) != other.get(path)
    ]
    raise_all(
        [
            f"{runs[0].path} has another {path} than the runs of the results; want the same"
            for path in paths
        ]
    )
    played = common_arms(runs)
    check_same_arms(
        {name: arm["network_value"] for name, arm in kept["arms"].items()}, played, runs[0].path
    )
    arms = {
        **kept["arms"],
        **{name: summarise_arm(one) for name, one in played.items() if name not in kept["arms"]},
    }
    added = [*kept["added"], *(run.evaluation_command() for run in runs)]
    return {
        **kept,
        "added": added,
        **compare_arms(arms, [run["seed"] for run in kept["runs"]]),
        "arms": arms,
    }


def compare_arms(arms: Mapping[str, Row], seeds: Sequence[int]) -> Row:
    """The trained policies of these training seeds beside every other arm."""
    values = {name: np.array(one["network_value"]) for name, one in arms.items()}
    ours = values[TRAINED_ARM]
    return {
        "gap_closed": gap_closed(values),
        "rivals": {
            name: compare_to_arm(ours, rows) for name, rows in values.items() if name != TRAINED_ARM
        },
        "seeds": [_seed_row(values, row, seed) for row, seed in enumerate(seeds)],
    }


def summarise_arm(arm: Mapping[str, Array]) -> Row:
    """An arm: network value with its intervals, means of the rest, and every network value [R,
    n].
    """
    rows = arm["network_value"]
    return {
        "mean": interval(rows.mean(axis=0), seed=SEED)._asdict(),
        "iqm": pooled_iqm(rows)._asdict(),
        **{name: float(arm[kind].mean()) for name, kind in MEANS.items()},
        "network_value": rows.tolist(),
    }


def pooled_iqm(rows: Array) -> Estimate:
    """The interquartile mean of all values [R, n], instances drawn for all runs at once."""
    if len(rows) == 1:
        return iqm(rows, seed=SEED)
    runs, count = rows.shape
    drawn = np.tile(draw_resamples(1, count, seed=SEED, count=resample_count(rows.size)), (1, runs))
    whole = resample_iqms(np.ones((1, rows.size), dtype=np.int16), rows.ravel())[0]
    return _percentile_estimate(whole, resample_iqms(drawn, rows.ravel()), count // 2)


def _percentile_estimate(whole: float, found: Array, size: int) -> Estimate:
    low, high = np.quantile(found, tail_shares(size, size - 1), method="weibull")
    return Estimate(float(whole), float(low), float(high))


def compare_to_arm(ours: Array, theirs: Array) -> Row:
    """Size and frequency of the advantage of the trained policy.  ours [R, n]; theirs [R, n], or
    [1, n] for all runs.

    `above_zero`: True if every interval of the difference is above 0.
    """
    behind = ours - theirs
    found, seeds = interval(behind.mean(axis=0), seed=SEED), seed_interval(behind)
    return {
        "difference": found._asdict(),
        "over_seeds": None if seeds is None else seeds._asdict(),
        "improvement": improvement_over_runs(behind)._asdict(),
        "above_zero": all(one.low > 0 for one in (found, seeds) if one is not None),
    }


def improvement_over_runs(behind: Array) -> Estimate:
    """The probability that a run is better on an instance, ties counted half, from differences [R,
    n].

    As in `statistics.improvement` two wins and two losses keep the interval from vanishing.
    """
    wins = (0.5 + 0.5 * np.sign(behind)).mean(axis=0)
    _, low, high = interval(np.concatenate((wins, (0.0, 0.0, 1.0, 1.0))), seed=SEED)
    return Estimate(float(wins.mean()), max(low, 0.0), min(high, 1.0))


def gap_closed(values: Mapping[str, Array]) -> Row | None:
    """The share of the way from one end of the gap to the other; None where these did not play or
    there is no way.
    """
    ends = gap_ends(values)
    if ends is None:
        return None
    lower, upper = ends
    own, whole = ((values[name].mean(axis=0) - values[lower][0]) for name in (TRAINED_ARM, upper))
    if interval(whole, seed=SEED).low <= 0:
        return None
    drawn = draw_resamples(1, len(own), seed=SEED, count=resample_count(len(own)))
    return _percentile_estimate(
        own.mean() / whole.mean(),
        resample_means(drawn, own) / resample_means(drawn, whole),
        len(own),
    )._asdict()


def gap_ends(values: Mapping[str, Array]) -> tuple[str, str] | None:
    """Both ends of the gap: the best of the arms that do not know what comes, and one that does;
    None without them.
    """
    for lower, upper in GAPS:
        if values.keys() >= {*lower, upper}:
            return max(lower, key=lambda name: values[name].mean()), upper
    return None


def _seed_row(values: Mapping[str, Array], row: int, seed: int) -> Row:
    """One training seed: its differences, and what it closes of the gap."""
    ours = values[TRAINED_ARM][row]
    behind = {
        name: interval(ours - rows[0], seed=SEED)._asdict()
        for name, rows in values.items()
        if name != TRAINED_ARM
    }
    return {
        "seed": seed,
        "difference": behind,
        "gap_closed": gap_closed({**values, TRAINED_ARM: ours[None]}),
    }


def learning_curves(runs: Sequence[EvaluatedRun]) -> Row | None:
    """Values on the held-out instances that a run plays as it learns, and of its rivals on the
    same; None without them.

    `rounds`: learned before each play; `mean`, `rivals`: means over the runs, of which each has its
    own instances.
    """
    own = {
        run.spec.seed: [play for play in run.plays if play.policy == run.spec.policy_name]
        for run in runs
    }
    rounds = [play.rounds for play in next(iter(own.values()))]
    if not rounds or any([play.rounds for play in plays] != rounds for plays in own.values()):
        return None
    rivals: dict[str, list[float]] = {}
    for run in runs:
        for play in (play for play in run.plays if play.policy != run.spec.policy_name):
            rivals.setdefault(play.policy, []).append(_mean_value(play))
    every = [[_mean_value(play) for play in plays] for plays in own.values()]
    return {
        "rounds": rounds,
        "instances": len(runs[0].plays[0].network_value),
        "mean": np.mean(every, axis=0).tolist(),
        "rivals": {name: float(np.mean(values)) for name, values in rivals.items()},
        "seeds": [{"seed": seed, "value": values} for seed, values in zip(own, every, strict=True)],
    }


def _mean_value(play: HeldOutPlayed) -> float:
    return float(np.nanmean(np.array(play.network_value, dtype=np.float64)))


def draw_curves(results: Row) -> bytes:
    """The learning curves as SVG; the same numbers give the same bytes."""
    salt = {"svg.hashsalt": "learning", "svg.fonttype": "none"}
    figure = import_module("morphogen.extras.pictures.figure")
    with matplotlib.rc_context(salt, fname=figure.STYLE_FILE):
        page, curves = figure.new_figure(4.0), results["curves"]
        ax = page.subplots()
        title = "Value on held-out instances, as the policy learns"
        figure.label_panel(ax, title, "rounds of training", "mean value")
        if curves is not None:
            _draw_plays(ax, curves)
        figure.add_legend(ax)
        file = io.BytesIO()
        page.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _draw_plays(ax: Axes, curves: Row) -> None:
    figure = import_module("morphogen.extras.pictures.figure")
    for place, one in enumerate(curves["seeds"]):
        style: dict[str, Any] = {"color": figure.CYCLE[place % len(figure.CYCLE)], "linewidth": 1}
        ax.plot(curves["rounds"], one["value"], label=f"seed {one['seed']}", **style)
    ax.plot(curves["rounds"], curves["mean"], color="black", label="mean over seeds", linewidth=2)
    for dash, (name, value) in zip(figure.DASHES[1:], curves["rivals"].items(), strict=False):
        ax.axhline(value, color=figure.GREY, linestyle=dash, label=name)
    figure.limit_to_learned(ax)


def markdown(results: Row) -> str:
    """The table of bench/README.md."""
    said, arms, took = (
        results["settings"],
        results["arms"],
        [run["seconds"] for run in results["runs"]],
    )
    seeds = ", ".join(str(run["seed"]) for run in results["runs"])
    each = f"{said['rounds']} rounds, {min(took):.0f} to {max(took):.0f} s each"
    lines = [
        f"Training seeds {seeds}, {each}; {said['episodes']} held-out instances",
        "",
        f"| arm | {TASKS[said['task']].value_name} (95 % interval) | {TRAINED_ARM} minus arm | "
        "over seeds | parameters | accuracy % |",
        "|---|---|---|---|---|---|",
        *(_table_row(name, one, results["rivals"].get(name)) for name, one in arms.items()),
    ]
    gap, ends = (
        results["gap_closed"],
        gap_ends({name: np.array(x["network_value"]) for name, x in arms.items()}),
    )
    closing = (
        f"Share of the way from `{ends[0]}` to `{ends[1]}`: {format_estimate(gap)}."
        if gap and ends
        else ""
    )
    return "\n".join([*lines, "", closing] if closing else lines)


def _table_row(name: str, one: Row, rival: Row | None) -> str:
    behind = seeds = ""
    if rival is not None:
        behind, ends = format_estimate(rival["difference"], "+"), rival["over_seeds"]
        seeds = f"{ends['low']:+.3f} .. {ends['high']:+.3f}" if ends else "-"
    size = f"{one['params']:,.0f} | {one['accuracy']:.1f}"
    return f"| `{name}` | {format_estimate(one['mean'])} | {behind} | {seeds} | {size} |"


def main(words: Sequence[str] | None = None) -> None:
    """Write both files and print what is asked for; exit code 2 where runs cannot be compared."""
    own = argparse.ArgumentParser("python -m bench.studies.learning", description=__doc__)
    own.add_argument("--json", type=Path, default=FILE, help="default %(default)s")
    own.add_argument("--picture", type=Path, default=PICTURE, help="default %(default)s")
    run_study(own, words, minimum="one", collect=_build_files, format_table=markdown)


def _build_files(args: argparse.Namespace) -> dict[Path, bytes]:
    runs = load_seed_runs(args.runs)
    if args.add:
        kept = read_results(args.json, runs, keys=("base", "runs", "added", "arms"))
        return {args.json: files.json_bytes(add_arms(kept, runs))}
    found = build_results(runs)
    return {args.json: files.json_bytes(found), args.picture: draw_curves(found)}


if __name__ == "__main__":
    main()
