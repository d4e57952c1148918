"""Share of a known optimum that ranks reach which gather their rows, or exchange gradients.

`python -m bench.studies.allreduce [--ranks 2] [--seeds 1 2 3] [--rounds N] [--json FILE]` trains
the preset `whitebox` on ranks, once per seed and value of `engine.reduce`, and keeps the shares
with their intervals over episodes and seeds.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import morphogen as mg
from bench.harness.machine import machine_facts
from morphogen.evaluation.bootstrap import interval, seed_interval
from morphogen.evaluation.play import play_arm
from morphogen.extras.ranks.process_group import ProcessGroup, join_ranks
from morphogen.extras.whitebox.optimum import optimal_returns

RESULTS = Path(__file__).parents[1] / "results" / "allreduce.json"
REDUCTIONS = ("gather", "allreduce")


def run_rank(reduce: str, seed: int, rounds: int | None) -> None:
    """Train as the rank that the environment names; rank 0 plays the held-out instances and prints
    a line of JSON.
    """
    torch.set_num_threads(1)
    fields: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
    spec = mg.RunSpec(preset="whitebox", seed=seed, engine={"reduce": reduce}, **fields)
    exchange = join_ranks(torch.device("cpu"), timeout_s=600)
    assert isinstance(exchange, ProcessGroup)
    scheduler = mg.Scheduler(mg.build_setup(mg.resolve(spec), exchange))
    began = time.perf_counter()
    scheduler.run()
    costs = {"train_s": time.perf_counter() - began, "waited_s": exchange.waited_s}
    exchange.close()
    if exchange.first:
        setup = replace(scheduler.setup, exchange=mg.ppo.Exchange())
        episodes = setup.spec.final_episodes
        played = play_arm(setup, scheduler.transfers, scheduler.arm, name="ppo", episodes=episodes)
        shares = played.network_value / optimal_returns(setup, scheduler.transfers, episodes).mean()
        exchanged = {
            name: entry._asdict() for name, entry in exchange.ledger.items() if entry.calls
        }
        print(json.dumps({**costs, "exchanged": exchanged, "shares": shares.tolist()}), flush=True)
    os._exit(0)  # a process that used gloo can abort at its exit


def run_job(ranks: int, reduce: str, seed: int, rounds: int | None) -> dict[str, Any]:
    """Train on ranks of this machine; return what rank 0 printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [
        sys.executable,
        "-m",
        "bench.studies.allreduce",
        "--rank-of",
        reduce,
        "--seeds",
        str(seed),
    ]
    words += [] if rounds is None else ["--rounds", str(rounds)]
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(ranks),
    }
    jobs = [
        subprocess.Popen(words, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(ranks)
    ]
    outputs = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit(f"{' '.join(words)}: exit codes {[job.returncode for job in jobs]}")
    return {"reduce": reduce, "seed": seed, **json.loads(outputs[0])}


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean share, low and high end of its intervals over episodes and over seeds, by value of
    `engine.reduce`.
    """
    rows = {
        reduce: np.array([run["shares"] for run in runs if run["reduce"] == reduce])
        for reduce in REDUCTIONS
    }
    return {
        reduce: {
            "episodes": interval(shares, seed=0),
            "seeds": seed_interval(shares),
            "share": shares.mean(1).tolist(),
        }
        for reduce, shares in rows.items()
        if len(shares)
    }


def main() -> None:
    """Print a line per run and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, help="instead of the preset's")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--rank-of", choices=REDUCTIONS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        run_rank(given.rank_of, given.seeds[0], given.rounds)
    facts = {
        "machine": machine_facts(device="cpu", threads=1),
        "preset": "whitebox",
        "ranks": given.ranks,
    }
    runs: list[dict[str, Any]] = []
    for seed in given.seeds:
        for reduce in REDUCTIONS:
            runs.append(run_job(given.ranks, reduce, seed, given.rounds))
            share, seconds = np.mean(runs[-1]["shares"]), runs[-1]["train_s"]
            print(
                f"{reduce}, seed {seed}: {share:.4f} of the optimal return, trained in "
                f"{seconds:.0f} s",
                flush=True,
            )
            result = {**facts, "summary": summarise(runs), "runs": runs}
            given.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
