"""Stacked training against a plain loop over per-env modules, and whether cost follows what is grown.

Run: `PYTHONPATH=tests python bench/bench_train.py [--envs 32] [--threads 2] [--repeats 7]`.
Both forms run in turn in one process; the ratio of medians is what counts on a machine that is shared.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import torch
import worlds
from plain import Learner

from morphogen.nets.net import Net
from morphogen.run.memory import keep_freed
from morphogen.state.env import EnvState
from morphogen.steps.train import start_epoch, train_minibatch
from morphogen.vocab.task import TASKS

TASK = TASKS["digits"]
SAMPLES = TASK.batch


def population(kind: str, net: Net, envs: int) -> EnvState:
    """Envs that hold nothing, one conv_light each, or every blueprint in every stage in all slots."""
    shape = (envs, len(net.slots))
    if kind == "none":
        return worlds.fresh(net, envs)
    stage, blueprint = torch.full(shape, 4), 1 + torch.arange(envs * shape[1]).view(shape) % 7
    algorithm, alpha = 1 + torch.arange(envs * shape[1]).view(shape) // 7 % 3, torch.full(shape, 0.5)
    if kind == "light":
        first = torch.arange(shape[1]).expand(shape) == 0
        stage, blueprint = torch.where(first, stage, 1), torch.where(first, 1, -1)
        algorithm, alpha = first.long(), alpha * first
    return worlds.nudge(worlds.grow(worlds.fresh(net, envs), net, stage, blueprint, algorithm, alpha), net)


def seconds(call) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(kind: str, net: Net, envs: int, repeats: int) -> tuple[float, float]:
    """Median milliseconds of a minibatch, stacked and as a plain loop."""
    state = population(kind, net, envs)
    plan = worlds.plan(state, net)
    batch = worlds.batch(net, envs, SAMPLES)
    progress = start_epoch(state, plan, net=net)
    learners = [Learner(worlds.twin(state, net, e), worlds.SPEC.lr, worlds.SPEC.seed_lr) for e in range(envs)]

    def stacked() -> None:
        train_minibatch(progress, batch, plan, net=net, spec=worlds.SPEC, lifecycle=worlds.LIFECYCLE)

    def loop() -> None:
        for e, learner in enumerate(learners):
            learner.step(batch.images[e], batch.labels[e])

    times = [(seconds(stacked), seconds(loop)) for _ in range(repeats + 2)][2:]
    ours, plain = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return ours, plain


def main() -> None:
    """Print one line per population."""
    parser = argparse.ArgumentParser()
    for name, default in (("--envs", 32), ("--threads", 2), ("--repeats", 7)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed()
    net = Net(TASK.host, TASK.host.enabled(TASK.slots))
    print(f"torch {torch.__version__}, {platform.machine()}, {options.threads} threads, E={options.envs}, B={SAMPLES}")
    rows = []
    for kind in ("none", "light", "mixed"):
        ours, plain = compare(kind, net, options.envs, options.repeats)
        print(f"{kind:6} stacked {ours:7.1f} ms  loop {plain:7.1f} ms  ratio {plain / ours:5.2f}")
        rows.append({"seeds": kind, "stacked_ms": ours, "loop_ms": plain, "ratio": plain / ours})
    if options.json is not None:
        machine = {"torch": torch.__version__, "machine": platform.machine(), "threads": options.threads}
        facts = {"machine": machine, "envs": options.envs, "batch": SAMPLES, "repeats": options.repeats, "rows": rows}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
