"""Gain of every compiled kernel on an epoch as a run trains it: `python -m bench.speed.kernels
[--json FILE]`.

An epoch is a step of the environment: action, training, validation and reward of envs with mixed
seeds.  A row is the time without one kernel over the time with all kernels, turn by turn.  Times
are processor times of one thread, so that other work on the machine counts little.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import morphogen as mg
from bench.harness.bench_scenes import add_seeds, seed_layout
from bench.harness.timing import (
    Bench,
    Measure,
    bench_facts,
    build_parser,
    format_measures,
    ms_measure,
    ratio_measure,
    write_measures,
)
from bench.speed.epoch import register_noise
from morphogen import kernels
from morphogen.config.spec import find_host, resolve
from morphogen.device.malloc import keep_freed_memory

KERNELS = {  # operators that a kernel serves
    **{name: (name,) for name in ("attention", "conv", "norm", "standardise", "sums")},
    "blend": ("blend", "blend_and_pool"),
    "blend_and_pool": ("blend_and_pool",),
    "pool": ("blend_and_pool", "pool"),
}
SETTINGS = {
    "digits_e8": ("digits", 8),
    "digits_e32": ("digits", 32),
    "cifar_e8": ("cifar_baseline", 8),
}
SETTINGS |= {"pydoc_e8": ("pydoc", 8)}
SMALLER = {  # epochs that would take many seconds
    "cifar_baseline": {"minibatches": 8, "val_samples": 300},
    "pydoc": {"minibatches": 24},
}
NOTES = {
    "sums": "stays whatever it gains: without it torch adds the columns of a stack in an order "
    "that depends on its size"
}


@dataclass(frozen=True)
class ProcessorBench(Bench):
    """Measurement of the time that the processor works, not of the time that it works for
    others.
    """

    def time_call(self, form: Callable[[], object]) -> float:
        """Processor time of one call."""
        started = time.process_time()
        form()
        return time.process_time() - started


def build_epoch(task: str, envs: int) -> Callable[[], object]:
    """Return an epoch of envs with mixed seeds, from the same state at every call."""
    data: dict[str, Any] = dict(SMALLER.get(task, {}))
    if task == "cifar_baseline":
        data["name"] = register_noise(find_host(resolve(mg.RunSpec(task=task, envs=envs))))
    env = mg.make(task, envs=envs, seed=0, data=data)
    state, _ = env.reset()
    state = add_seeds(state, env.net, *seed_layout("mixed", envs, env.net, torch.device("cpu")))
    return partial(env.step, state, mg.actions.wait(env))


def find_kernels(epoch: Callable[[], object]) -> list[str]:
    """Return the kernels that run in an epoch."""
    found: set[str] = set()
    limits = dict(kernels.LIMITS)
    operators = {operator for served in KERNELS.values() for operator in served}

    def note(operator: str, x: Tensor) -> bool:
        serves = operator not in limits or limits[operator](x)
        found.update({operator} if serves else ())
        return serves

    with mock.patch.dict(kernels.LIMITS, {name: partial(note, name) for name in operators}):
        epoch()
    return [kernel for kernel, served in KERNELS.items() if found.intersection(served)]


def without(kernel: str) -> AbstractContextManager[object]:
    """Compute the operators of a kernel in plain torch within this context."""
    return mock.patch.dict(kernels.LIMITS, dict.fromkeys(KERNELS[kernel], lambda x: False))


def measures(bench: Bench, settings: list[str]) -> list[Measure]:
    """Return the rows of some settings."""
    rows: list[Measure] = []
    for setting in settings:
        epoch = build_epoch(*SETTINGS[setting])
        names = find_kernels(epoch)

        def run(kernel: str, epoch: Callable[[], object] = epoch) -> None:
            with without(kernel):
                epoch()

        forms = {"": epoch, **{name: partial(run, name) for name in names}}
        seconds = bench.time_interleaved(forms)
        rows.append(ms_measure(f"{setting}_ms", seconds[""]))
        rows += [
            ratio_measure(f"{setting}_without_{name}", seconds[name], seconds[""]) for name in names
        ]
        print(format_measures(rows[-len(forms) :]), flush=True)
    return rows


if __name__ == "__main__":
    parser = build_parser(__doc__)
    parser.add_argument(
        "--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS, help="default: all"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    bench = ProcessorBench(runs=args.runs)
    rows = measures(bench, args.settings)
    if args.json is not None:
        write_measures(args.json, {**bench_facts(bench), "notes": NOTES}, rows)
