"""Cost of a round over ranks and envs, computed from measured parts: `python -m
bench.studies.scaling`.

Measured here, on one core: seconds of an epoch over the envs of a rank, seconds of an update over
all envs; counted: bytes of the rollout, of the record and of a checkpoint.  Computed: the
collectives on a ring and on a tree, by the usual model, latency plus bytes over bandwidth; memory
of a rank.  `--table` prints the table of the file.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import morphogen as mg
from bench.harness.bench_scenes import build_scheduler
from bench.harness.machine import machine_facts
from morphogen.device.malloc import keep_freed_memory
from morphogen.device.transfers import flatten_names
from morphogen.env.episodes import first_carry
from morphogen.train.reporter import build_record

FILE = Path(__file__).parents[1] / "results" / "scaling.json"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # envs of a rank
UPDATES = (16, 64, 256)  # envs of an update
RANKS, ENVS = (1, 4, 16, 64, 256, 1_024), (64, 1_024, 16_384, 131_072, 1_048_576)
GIBI, MEBI = 2**30, 2**20
Row = dict[str, Any]


class Network(NamedTuple):
    """Links between ranks."""

    name: str
    gbit_s: float
    latency_s: float

    def all_gather(self, ranks: int, total: float, *, tree: bool) -> float:
        """Seconds until every rank holds `total` bytes, of which each contributes an equal part."""
        steps = math.ceil(math.log2(ranks)) if tree else ranks - 1
        return steps * self.latency_s + self._seconds(total * (ranks - 1) / ranks)

    def all_reduce(self, ranks: int, size: float, *, tree: bool) -> float:
        """Seconds to sum `size` bytes over the ranks."""
        steps = math.ceil(math.log2(ranks)) if tree else ranks - 1
        volume = steps * size if tree else size * (ranks - 1) / ranks
        return 2 * (steps * self.latency_s + self._seconds(volume))

    def _seconds(self, size: float) -> float:
        return 8 * size / (1e9 * self.gbit_s)


NETWORKS = (Network("25 Gbit/s", 25, 30e-6), Network("400 Gbit/s", 400, 5e-6))


def measure_parts(repeats: int) -> Row:
    """Measure and count the parts of a round on `digits`."""
    epochs = {envs: _epoch_seconds(envs, repeats) for envs in SIZES}
    updates = {envs: _update_seconds(envs, repeats) for envs in UPDATES}
    slope, start = np.polyfit([*updates], [*updates.values()], 1)
    scheduler = build_scheduler(1, torch.device("cpu"))
    carry = first_carry(scheduler.env, scheduler.policy)
    _, epoch = scheduler.run_epoch(carry, 0)
    spec, params = scheduler.setup.spec, scheduler.params["net"]
    trees = {
        "rollout": scheduler.rollout.rows[0],
        "record": build_record(epoch),
        "state": carry.state.to_tensordict(),
    }
    scheduler.reporter.close()
    return {
        "epoch_s": epochs,
        "update_s": updates,
        "update_start_s": float(max(start, 0.0)),
        "update_per_env_s": float(slope),
        "epochs": spec.episode_length,
        "ppo_steps": spec.ppo.epochs * math.gcd(4, UPDATES[0]),
        "bytes": {
            name: sum(leaf.nbytes for leaf in flatten_names(tree).values())
            for name, tree in trees.items()
        },
        "policy_bytes": sum(leaf.nbytes for leaf in params.values()),
    }


@torch.no_grad()
def _epoch_seconds(envs: int, repeats: int) -> float:
    """Median CPU seconds of an epoch of random policies, over the epochs of some episodes."""
    scheduler = build_scheduler(envs, torch.device("cpu"), policy_name="random")
    spent: list[float] = []
    with scheduler.env:
        for _ in range(repeats):
            started = time.process_time()
            scheduler.run_round()
            spent.append((time.process_time() - started) / scheduler.setup.spec.episode_length)
    scheduler.reporter.close()
    return float(np.median(spent))


@torch.no_grad()
def _update_seconds(envs: int, repeats: int) -> float:
    """Median CPU seconds of an update on the rows of a rollout of zeros."""
    scheduler = build_scheduler(envs, torch.device("cpu"))
    spent: list[float] = []
    for _ in range(1 + repeats):
        started = time.process_time()
        turn = mg.Round(scheduler.setup.spec, 0)
        scheduler.learner.update(
            scheduler.learned, scheduler.rollout.rows, policy=scheduler.policy, round=turn
        )
        spent.append(time.process_time() - started)
    scheduler.reporter.close()
    return float(np.median(spent[1:]))


def model_round(parts: Row, ranks: int, envs: int) -> Row:
    """Cost of a round of `envs` envs on `ranks` ranks, in seconds and bytes."""
    own, epochs, size = envs / ranks, parts["epochs"], parts["bytes"]
    rollout, record = (envs * epochs * size[name] for name in ("rollout", "record"))
    update = parts["update_start_s"] + envs * parts["update_per_env_s"]
    row: Row = {
        "ranks": ranks,
        "envs": envs,
        "rollout_s": epochs * _epoch_at(parts, own),
        "update_s": update,
        "update_allreduce_s": parts["update_start_s"] + own * parts["update_per_env_s"],
        "rollout_bytes": rollout,
        "record_bytes": record,
        "gradient_bytes": parts["ppo_steps"] * parts["policy_bytes"],
        "checkpoint_bytes": envs * size["state"] + 4 * parts["policy_bytes"],
        "rank_bytes": own * size["state"] * 2 + rollout + record,
    }
    for net in NETWORKS:
        for form, tree in (("ring", False), ("tree", True)):
            gathers = [net.all_gather(ranks, total, tree=tree) for total in (rollout, record)]
            step = net.all_reduce(ranks, parts["policy_bytes"], tree=tree)
            row[f"gather_{form}_{net.gbit_s:g}_s"] = sum(gathers)
            row[f"allreduce_{form}_{net.gbit_s:g}_s"] = parts["ppo_steps"] * step + gathers[1]
    return row


def _epoch_at(parts: Row, envs: float) -> float:
    """Seconds of an epoch of a rank: measured, straight between sizes, in proportion beyond the
    largest.
    """
    sizes, seconds = zip(
        *((float(size), value) for size, value in parts["epoch_s"].items()), strict=True
    )
    return (
        seconds[-1] * envs / sizes[-1]
        if envs > sizes[-1]
        else float(np.interp(envs, sizes, seconds))
    )


def breaking_points(parts: Row) -> Row:
    """Return what bounds a run first, under gather, by the number of envs of a rank that compute
    for a whole round.
    """
    per_env = parts["epochs"] * parts["epoch_s"][SIZES[-1]] / SIZES[-1]
    size = parts["epochs"] * (parts["bytes"]["rollout"] + parts["bytes"]["record"])
    return {
        # the update takes as long as the rollout
        "ranks_of_equal_update": per_env / parts["update_per_env_s"],
        "envs_of_16_gib": 16 * GIBI / size,  # rows and columns of a round on every rank
        **{
            f"ranks_of_equal_gather_{net.gbit_s:g}": per_env * net.gbit_s * 1e9 / (8 * size)
            for net in NETWORKS
        },
    }


def markdown(results: Row) -> str:
    """The table of bench/README.md."""
    head = ("ranks", "envs", "rollout s", "update s", "all-reduce update s", "gathered MiB")
    head += ("ring / tree s at 25 Gbit/s", "at 400 Gbit/s", "checkpoint MiB", "GiB a rank")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in results["rounds"]:
        links = [
            f"{row[f'gather_ring_{n.gbit_s:g}_s']:.3g} / {row[f'gather_tree_{n.gbit_s:g}_s']:.3g}"
            for n in NETWORKS
        ]
        gathered = (row["rollout_bytes"] + row["record_bytes"]) / MEBI
        seconds = [f"{row[name]:.3g}" for name in ("rollout_s", "update_s", "update_allreduce_s")]
        sizes = [f"{row['checkpoint_bytes'] / MEBI:,.0f}", f"{row['rank_bytes'] / GIBI:.2g}"]
        cells = [
            f"{row['ranks']:,}",
            f"{row['envs']:,}",
            *seconds,
            f"{gathered:,.0f}",
            *links,
            *sizes,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, compute and write the file; or print the table of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--repeats", type=int, default=3, help="rounds of every size")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the file, measure nothing"
    )
    given = parser.parse_args()
    if given.table:
        print(markdown(json.loads(given.json.read_text())))
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    parts = measure_parts(given.repeats)
    rounds = [model_round(parts, ranks, envs) for envs in ENVS for ranks in RANKS if envs >= ranks]
    facts = {
        "machine": machine_facts(device="cpu", threads=1),
        "parts": parts,
        "limits": breaking_points(parts),
    }
    given.json.write_text(json.dumps({**facts, "rounds": rounds}, indent=1) + "\n")
    print(json.dumps(facts["limits"], indent=1))


if __name__ == "__main__":
    main()
