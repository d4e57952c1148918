"""Timing: alternating forms in one process, ratios run by run, medians with half the quartile
range.

forms = {"loop": loop.train, "stacked": scene.train}
seconds = interleaved(forms, runs=5)
measure = ratio("train", seconds["loop"], seconds["stacked"])
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.harness.machine import machine_facts
from morphogen.cli.process import write_json
from morphogen.device import cuda_memory
from morphogen.device.malloc import keep_freed_memory

CPU = torch.device("cpu")
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Measure:
    """Median over the runs, and half the range between the quartiles."""

    name: str
    value: float
    spread: float
    runs: int
    unit: str  # ratio, share, ms, ...


@dataclass(frozen=True)
class Bench:
    """Settings of a measurement, and results that measures share."""

    runs: int = 5
    device: torch.device = CPU
    checksums: dict[str, float] = field(default_factory=dict)

    def time_interleaved(
        self, forms: Mapping[str, Callable[[], object]], *, warm: bool = True
    ) -> Seconds:
        """Seconds of every form, measured in turn; with `warm`, one turn before that counts for
        nothing.

        Every turn begins with another form, since what ran before leaves its mark on caches.
        """
        gc.collect()
        gc.freeze()  # what was measured before is not gone through again and again
        names = list(forms)
        orders = [
            names[n % len(names) :] + names[: n % len(names)] for n in range(self.runs + warm)
        ]
        turns = [{name: self.time_call(forms[name]) for name in order} for order in orders]
        return {name: [turn[name] for turn in turns[warm:]] for name in forms}

    def time_call(self, form: Callable[[], object]) -> float:
        """Wall time of one call, to the end of what it started on the device."""
        self.synchronize()
        started = time.perf_counter()
        form()
        self.synchronize()
        return time.perf_counter() - started

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def record_checksum(self, name: str, tensor: Tensor) -> None:
        """Remember what was computed: a benchmark that computes something else is noticed."""
        self.checksums[name] = float(tensor.double().sum())


def half_quartile_range(values: Sequence[float]) -> float:
    """Return half the range between the quartiles; 0 for one value."""
    low, high = np.percentile(values, (25, 75))
    return float(high - low) / 2


def median_measure(name: str, values: Sequence[float], unit: str) -> Measure:
    """Return the median of values and half their quartile range."""
    return Measure(name, statistics.median(values), half_quartile_range(values), len(values), unit)


def write_measures(path: Path, facts: Mapping[str, Any], measures: Iterable[Measure]) -> None:
    """Write machine and table as JSON; an existing file is replaced atomically.

    facts: of the machine, with checksums of the computed results.
    """
    write_json(path, {"machine": facts, "measures": [asdict(row) for row in measures]})


def ratio_measure(
    name: str, above: Sequence[float], below: Sequence[float], unit: str = "ratio"
) -> Measure:
    """Return the median of the ratios of interleaved runs."""
    return median_measure(name, [a / b for a, b in zip(above, below, strict=True)], unit)


def machine_line(facts: Mapping[str, Any]) -> str:
    """Format the machine in one line."""
    names = ("cpu", "instructions", "cores", "threads", "device", "torch", "load")
    return ", ".join(f"{name} {facts[name]}" for name in names)


def format_measures(measures: Iterable[Measure]) -> str:
    """Format one line per measure."""
    return "\n".join(
        f"{row.name:34} {row.value:10.3f} +- {row.spread:7.3f} {row.unit:12} {row.runs:3} runs"
        for row in measures
    )


def ms_measure(name: str, seconds: Sequence[float]) -> Measure:
    """A time on this machine, which says little about another one."""
    return median_measure(name, [1e3 * value for value in seconds], "ms")


def bench_facts(bench: Bench) -> dict[str, Any]:
    """Machine and versions of a measurement."""
    own = machine_facts(
        device=cuda_memory.device_name(bench.device), threads=torch.get_num_threads()
    )
    return {**own, "checksums": dict(bench.checksums)}


def build_parser(doc: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the table to this file")
    made.add_argument(
        "--runs", type=int, default=5, metavar="N", help="runs of every form (default 5)"
    )
    threads = torch.get_num_threads()
    made.add_argument(
        "--threads", type=int, default=threads, metavar="N", help=f"threads (default {threads})"
    )
    made.add_argument("--device", type=torch.device, default=CPU, help="cpu (default) or cuda")
    return made


def start_bench(args: argparse.Namespace) -> Bench:
    """The benchmark that the flags ask for, with threads pinned and memory held as in a run."""
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    return Bench(runs=args.runs, device=args.device)


def run_bench(
    doc: str | None, measure: Callable[[Bench, int], Sequence[Measure]], *, envs: int = 32
) -> None:
    """The whole of a benchmark over a number of envs, from its flags to its table.  envs: the
    default.
    """
    own = build_parser(doc)
    own.add_argument("--envs", type=int, default=envs, metavar="E", help=f"envs (default {envs})")
    given = own.parse_args()
    bench = start_bench(given)
    finish_bench(given, bench, measure(bench, given.envs))


def finish_bench(args: argparse.Namespace, bench: Bench, rows: Sequence[Measure]) -> None:
    """Print the table and write it where the flags say."""
    facts = bench_facts(bench)
    print(machine_line(facts))
    print(format_measures(rows))
    if args.json is not None:
        write_measures(args.json, facts, rows)
