"""Worth of growing in each task, on training instances: `python -m bench.studies.worlds
[--only TASK ...] [--search TASK ...] [--train TASK ...] [--on N] [--table]`.

Every schedule that germinates one seed in the first epoch and keeps it, or none, plays the same
instances in two worlds each.  Under the prices of the task that gives the value of the host alone,
of the best static network, and of the best one of each instance, which is picked in one world and
judged in the other: nobody who is not shown the worlds can do better with one seed.  The rules
`heuristic` play the same instances.  In tasks of `--search` schedules of `morphogen tune` play them
too, with seeds that come later and several of them.  In tasks of `--train` a policy is trained from
scratch with the defaults of the task, and plays held-out instances beside `wait`.

Large tasks are cut: fewer epochs and minibatches, which the file names.  Tasks whose data is
missing are left out, and named.  `bench/results/worlds.json` keeps the rows of tasks that are not
measured again; `--table` prints the table of bench/README.md from it.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import morphogen as mg
from bench.harness.machine import machine_facts
from bench.studies.landscape import WORLDS, measure_landscape, value_at_prices
from morphogen.config.config_files import build_spec
from morphogen.config.spec import resolve
from morphogen.config.task import TASKS
from morphogen.env.policies import build_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.errors import DataError
from morphogen.evaluation.arms import open_context
from morphogen.extras.search.instance_sets import play_values, training_instances
from morphogen.extras.search.successive_halving import search_schedules

FILE = Path(__file__).parents[1] / "results" / "worlds.json"
CUT = {"episode_length": 12, "data": {"batch": 16, "minibatches": 16, "val_samples": 250}}
SIZES: dict[str, dict[str, Any]] = {  # settings beyond the defaults of the task
    "fashion": {},
    "fashion_full": CUT,
    "mnist5k": CUT,
    "mnist1d": CUT,
    "shakespeare": {
        "episode_length": 12,
        "data": {"batch": 8, "minibatches": 16, "val_samples": 128},
    },
    "negative": {},
}
FREE = {"instance": {"param_price": [0.0, 0.0]}}
Row = dict[str, Any]


def measure_world(task: str, count: int, *, search: bool = False, train: bool = False) -> Row:
    """Measure a task on `count` training instances in two worlds each; search schedules and train a
    policy if asked.
    """
    began = time.perf_counter()
    priced = resolve(build_spec({"task": task}, SIZES[task]))
    free = resolve(build_spec({"task": task}, SIZES[task] | FREE))
    setup = build_setup(priced)
    found = measure_landscape(free, count)
    prices = priced.instance.param_price
    worth = value_at_prices(found, prices, budget=setup.budget)
    accuracy = {row["grows"]: 100 * float(np.mean(row["accuracy"])) for row in found["schedules"]}
    best = worth["best_fixed"]
    return {
        "host_parameters": setup.net.host_size,
        "instances": count,
        "settings": SIZES[task],
        "prices": list(prices),
        "score": {"host": accuracy["nothing"], "best static": accuracy[best["grows"]]},
        "static": best["grows"],
        "largest_gain": max(accuracy.values()) - accuracy["nothing"],
        "value": {
            "host": worth["nothing"],
            "heuristic": score_rules(setup, count),
            "best static": best["value"],
            "best of each": worth["best_of_each"],
        },
        "schedule": search_schedule(setup, count) if search else None,
        "trained": train_policy(task) if train else None,
        "seconds": time.perf_counter() - began,
    }


def search_schedule(setup: Setup, count: int) -> Row:
    """Search the best schedule on the same instances and worlds; its value is judged in worlds that
    had no part in its choice.
    """
    found, _ = search_schedules(open_context(setup, print), instances=count, worlds=WORLDS)
    return {
        "grows": found["best"],
        "value": found["value in other worlds"],
        "schedules": found["schedules"],
    }


def train_policy(task: str) -> Row:
    """Train a policy from scratch; mean values of policy and `wait` on held-out instances."""
    run = mg.train_ppo_vectorized(task=task, **SIZES[task])
    values = {arm.policy: arm.network_value for arm in run.results}
    return {
        "value": float(values["ppo"].mean()),
        "wait": float(values["wait"].mean()),
        "episodes": len(values["ppo"]),
    }


def score_rules(setup: Setup, count: int) -> float:
    """Mean value of the rules `heuristic` on the same instances and worlds."""
    context = open_context(setup, print)
    policy = build_arm("heuristic", setup).policy
    instances = training_instances(setup.spec, count)
    values = [play_values(context, instances, world, policy=policy) for world in range(WORLDS)]
    return float(np.mean(values))


def markdown(results: Row) -> str:
    """Return the table of bench/README.md."""
    lines = [
        "| task | host: parameters, score % | value alone | heuristic | best static net | best of "
        "each | best schedule | best static net, its score % | trained minus `wait`, held out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task, row in results["worlds"].items():
        value, score = row["value"], row["score"]
        numbers = " | ".join(f"{value[name]:.3f}" for name in value)
        host = f"{row['host_parameters']:,}, {score['host']:.1f}"
        best = f"{row['static']}, {score['best static']:.1f}"
        schedule, policy = row.get("schedule"), row.get("trained")
        searched = f"{schedule['value']:.3f}" if schedule else ""
        gain = f"{policy['value'] - policy['wait']:+.3f}" if policy else ""
        lines.append(f"| `{task}` | {host} | {numbers} | {searched} | {best} | {gain} |")
    return "\n".join(lines)


def figures(row: Row) -> str:
    """Return the line of `morphogen data` about a task."""
    value, score = row["value"], row["score"]
    epochs = row["settings"].get("episode_length")
    when = f"after {epochs} short epochs: " if epochs else ""
    alone = f"{when}host alone {score['host']:.1f} %"
    if row["static"] == "nothing":
        return f"{alone}; no single seed pays"
    return (
        f"{alone}, with {row['static']} {score['best static']:.1f} %; value alone "
        f"{value['host']:.3f}, best static net {value['best static']:.3f}, best of each instance "
        f"{value['best of each']:.3f}"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, write after every task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES), metavar="TASK")
    parser.add_argument("--search", nargs="+", choices=SIZES, default=[], metavar="TASK")
    parser.add_argument("--train", nargs="+", choices=SIZES, default=[], metavar="TASK")
    parser.add_argument("--on", type=int, default=8, metavar="N", help="instances (default 8)")
    parser.add_argument("--table", action="store_true", help="print the table of the file")
    parser.add_argument("--json", type=Path, default=FILE, metavar="FILE")
    given = parser.parse_args(words)
    found: Row = json.loads(given.json.read_text()) if given.json.exists() else {"worlds": {}}
    if given.table:
        print(markdown(found))
        return
    torch.set_num_threads(1)
    found["machine"] = machine_facts(device="cpu", threads=1)
    for task in given.only:
        try:
            row = measure_world(
                task, given.on, search=task in given.search, train=task in given.train
            )
        except DataError as error:
            print(f"{task}: left out: {error}")
            continue
        found["worlds"][task] = {**row, "question": TASKS[task].question}
        text = json.dumps(found, indent=1)
        given.json.write_text(text + "\n")
        print(f"{task}: {row['seconds']:.0f} s; values {row['value']}")
    print(markdown(found))


if __name__ == "__main__":
    main()
