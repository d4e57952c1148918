"""Worth of control in `digits_regimes`, on training instances: `python -m bench.studies.regimes
FILE FILE [--on N]`.

For each kind of regime, a view with a number of classes, the best static net of worlds whose
regimes are all of this kind.  Then the best static net and the best schedule of all instances, in
the files of `morphogen tune --family static` and `--family open` on as many instances, beside the
schedules that are laid along the regimes of each instance: these are found in sibling worlds and
judged in the world of a run, the others are judged where they were chosen too, which flatters them.
Held-out instances are not looked at.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness.machine import machine_facts
from morphogen.config.config_files import build_spec
from morphogen.config.files import json_bytes
from morphogen.config.spec import RunSpec, resolve
from morphogen.device.transfers import Transfers
from morphogen.env.setup import build_setup
from morphogen.evaluation.arms import PlayContext
from morphogen.evaluation.bootstrap import interval
from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.regime_spec import RegimeSpec, ViewWeights
from morphogen.extras.schedules.action_schedule import Schedule, parse_schedule
from morphogen.extras.search.candidates import build_schedule, initial_candidates
from morphogen.extras.search.clairvoyant import regime_starts, search_along_regimes
from morphogen.extras.search.instance_sets import score_pairs, score_schedules, training_instances
from morphogen.vocab.action import Head, Op

FILE = Path(__file__).parents[1] / "results" / "digits_regimes.json"
PRESET = "digits_regimes"
WORLDS = 2
SEED = 0
# Bounds of the task.
GAIN = 0.05  # difference
GAIN_LOW = 0.03  # end of its interval
SHARE = 0.3  # instances
KINDS = 2  # kinds of regimes
Row = dict[str, Any]
Report = Callable[[str], None]


def kinds_of_regimes(regime: RegimeSpec) -> list[tuple[View, int]]:
    """Every view with every number of classes that it occurs with."""
    ranges = {view: regime.classes_in(view) or (10, 10) for view in regime.views.used}
    return [
        (view, classes) for view, (low, high) in ranges.items() for classes in range(low, high + 1)
    ]


def spec_of_kind(spec: RunSpec, view: View, classes: int) -> RunSpec:
    """Settings of worlds whose regimes are all of one kind.

    Every weight is given: a preset fills in what is not.
    """
    weights = ViewWeights(**{other.label: int(other is view) for other in View})
    return replace(
        spec,
        regime=replace(spec.regime, views=weights, classes=(classes, classes), noisy_classes=None),
    )


def measure_kinds(spec: RunSpec, count: int, report: Report) -> list[Row]:
    """Best static net of each kind of regime, in worlds of this kind alone, and its gain over those
    of the others.
    """
    rows: list[Row] = []
    values: list[np.ndarray[Any, Any]] = []
    candidates = initial_candidates(spec, static=True)
    for view, classes in kinds_of_regimes(spec.regime):
        alone = spec_of_kind(spec, view, classes)
        setup = build_setup(alone)
        context = PlayContext(setup, Transfers(setup.device, time.perf_counter))
        schedules = [build_schedule(candidate, alone) for candidate in candidates]
        values.append(
            score_schedules(
                context, schedules, training_instances(alone, count), worlds=range(WORLDS)
            )
        )
        means = values[-1].mean(axis=(1, 2))
        best = int(means.argmax())
        rows.append(
            {
                "view": view.label,
                "classes": classes,
                "best": schedules[best].name,
                "value": float(means[best]),
            }
        )
        report(
            f"{view.label}, {classes} classes: {schedules[best].name}, {means[best]:.3f} "
            f"(nothing {means[0]:.3f})"
        )
    best = [int(one.mean(axis=(1, 2)).argmax()) for one in values]
    for row, one, own in zip(rows, values, best, strict=True):
        others = sorted({i for i in best if i != own})
        gains = {
            schedules[i].name: interval((one[own] - one[i]).mean(axis=0), seed=SEED)._asdict()
            for i in others
        }
        row["gain_over_best_of_other_kinds"] = gains
    return rows


def measure_rivals(spec: RunSpec, count: int, rivals: dict[str, Schedule], report: Report) -> Row:
    """Values per instance of doing nothing, of schedules that do not look, and of those along the
    regimes.
    """
    setup = build_setup(spec)
    context = PlayContext(setup, Transfers(setup.device, time.perf_counter), report=report)
    instances = training_instances(spec, count)
    fixed = {"wait": build_schedule((), spec), **rivals}
    played = score_schedules(context, list(fixed.values()), instances, worlds=[0])[:, 0]
    picks = [candidate for candidate, _ in search_along_regimes(context, instances)]
    own = [build_schedule(candidate, spec) for candidate in picks]
    values = dict(zip(fixed, played, strict=True))
    values["clairvoyant"] = score_pairs(context, own, instances, worlds=[0])[0]
    starts = regime_starts(spec, instances)
    ops = Counter(op for one in own for op in {Op(step.action[Head.OP]).name for step in one.steps})
    later = [
        any(growth.epoch >= begins[1] for growth in candidate)
        for candidate, begins in zip(picks, starts, strict=True)
        if begins[1:]
    ]
    return {
        "values": {name: value.tolist() for name, value in values.items()},
        "means": {name: interval(value, seed=SEED)._asdict() for name, value in values.items()},
        "clairvoyant_minus": {
            name: interval(values["clairvoyant"] - values[name], seed=SEED)._asdict()
            for name in rivals
        },
        "grows": {name: schedule.name for name, schedule in rivals.items()},
        "picks": [schedule.name for schedule in own],
        "prunes": float(
            np.mean(
                [any(growth.pruning is not None for growth in candidate) for candidate in picks]
            )
        ),
        "grows_later": float(np.mean(later)) if later else 0.0,
        "regimes": float(np.mean([len(one) for one in starts])),
        "ops": {op.name: ops[op.name] / count for op in Op},
    }


def judge(kinds: Sequence[Row], rivals: Row) -> dict[str, bool]:
    """Hold the measurements to the bounds of the task."""
    different = [
        row
        for row in kinds
        if any(one["low"] > 0 for one in row["gain_over_best_of_other_kinds"].values())
    ]
    behind = rivals["clairvoyant_minus"].values()
    return {
        "kinds of regimes with another best static net": len(different) >= KINDS,
        "clairvoyant minus static and minus open": all(
            x["value"] >= GAIN and x["low"] > GAIN_LOW for x in behind
        ),
        "clairvoyant prunes": rivals["prunes"] >= SHARE,
        "clairvoyant grows after the first regime": rivals["grows_later"] >= SHARE,
        "every op is used": all(rivals["ops"].values()),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("static", "open"):
        parser.add_argument(
            name, type=Path, metavar="FILE", help=f"of `morphogen tune --family {name}`"
        )
    parser.add_argument(
        "--on", type=int, default=48, metavar="N", help="training instances (default %(default)s)"
    )
    parser.add_argument(
        "--kinds-on", type=int, default=16, metavar="N", help="of each kind (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=FILE, help="default %(default)s")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    began, spec = time.perf_counter(), resolve(build_spec({"preset": PRESET}))
    rivals = {
        name: parse_schedule(getattr(given, name).read_text(), spec) for name in ("static", "open")
    }

    def report(line: str) -> None:
        print(f"{time.perf_counter() - began:6.0f} s  {line}", flush=True)

    kinds = measure_kinds(spec, given.kinds_on, report)
    found = measure_rivals(spec, given.on, rivals, report)
    counts = f"--on {given.on} --kinds-on {given.kinds_on}"
    results = {
        "machine": machine_facts(device="cpu", threads=1),
        "command": f"python -m bench.studies.regimes {given.static} {given.open} {counts}",
        "criteria": judge(kinds, found),
        "kinds": kinds,
        "rivals": found,
        "seconds": time.perf_counter() - began,
    }
    for name, one in found["clairvoyant_minus"].items():
        report(
            f"clairvoyant minus {name}: {one['value']:+.3f} ({one['low']:+.3f} .. "
            f"{one['high']:+.3f})"
        )
    report(
        f"prunes in {found['prunes']:.0%}, grows after the first regime in "
        f"{found['grows_later']:.0%}"
    )
    report(json.dumps(results["criteria"]))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_bytes(json_bytes(results))


if __name__ == "__main__":
    main()
