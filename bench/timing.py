"""How everything is measured: forms in turn in one process, ratios run by run, medians with half the quartile range.

forms = {"loop": loop.train, "stacked": scene.train}
seconds = interleaved(forms, runs=5)
measure = ratio("train", seconds["loop"], seconds["stacked"])
"""

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from morphogen.run.memory import keep_freed

CPU = torch.device("cpu")
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Measure:
    """One row of the table: the median over the runs, and half the range between the quartiles."""

    name: str
    value: float
    spread: float
    runs: int
    unit: str  # ratio, share, ms, ...


@dataclass(frozen=True)
class Bench:
    """How to measure, and what was computed on the way."""

    runs: int = 5
    device: torch.device = CPU
    checksums: dict[str, float] = field(default_factory=dict)

    def interleaved(self, forms: Mapping[str, Callable[[], object]], *, warm: bool = True) -> Seconds:
        """Seconds of every form, measured in turn; with `warm`, one turn before that counts for nothing."""
        gc.collect()
        turns = [{name: self.seconds(form) for name, form in forms.items()} for _ in range(self.runs + warm)]
        return {name: [turn[name] for turn in turns[warm:]] for name in forms}

    def seconds(self, form: Callable[[], object]) -> float:
        """Wall time of one call, to the end of what it started on the device."""
        self.settle()
        started = time.perf_counter()
        form()
        self.settle()
        return time.perf_counter() - started

    def settle(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def saw(self, name: str, values: Tensor) -> None:
        """Remember what was computed: a benchmark that computes something else is noticed."""
        self.checksums[name] = float(values.double().sum())


def over(name: str, values: Sequence[float], unit: str) -> Measure:
    """The median of values that were measured one by one."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Measure(name, statistics.median(values), (high - low) / 2, len(values), unit)


def ratio(name: str, above: Sequence[float], below: Sequence[float], unit: str = "ratio") -> Measure:
    """The median of the ratios of runs that followed each other."""
    return over(name, [a / b for a, b in zip(above, below, strict=True)], unit)


def milliseconds(name: str, seconds: Sequence[float]) -> Measure:
    """A time on this machine, which says little about another one."""
    return over(name, [1e3 * value for value in seconds], "ms")


def machine(bench: Bench) -> dict[str, object]:
    """Where and with what it was measured."""
    packages = {name: version(name) for name in ("torch", "tensordict", "torchrl")}
    device = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else "cpu"
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **packages,
        "checksums": dict(bench.checksums),
    }


def _cpu() -> str:
    """Name of the processor, as far as the system tells."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def table(measures: Iterable[Measure]) -> str:
    """One line per measure."""
    return "\n".join(
        f"{one.name:34} {one.value:10.3f} +- {one.spread:7.3f} {one.unit:12} {one.runs:3} runs" for one in measures
    )


def write(path: Path, bench: Bench, measures: Sequence[Measure]) -> None:
    """The table as JSON."""
    facts = {"machine": machine(bench), "measures": [asdict(one) for one in measures]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the table to this file")
    made.add_argument("--runs", type=int, default=5, metavar="N", help="runs of every form (default 5)")
    made.add_argument("--device", type=torch.device, default=CPU, help="cpu (default) or cuda")
    return made


def start(given: argparse.Namespace) -> Bench:
    """The benchmark that the flags ask for, with memory held as in a run."""
    keep_freed()
    return Bench(runs=given.runs, device=given.device)


def run(doc: str | None, measures: Callable[[Bench, int], Sequence[Measure]], *, envs: int = 32) -> None:
    """The whole of a benchmark over a number of envs, from its flags to its table.  envs: the default."""
    own = parser(doc)
    own.add_argument("--envs", type=int, default=envs, metavar="E", help=f"envs (default {envs})")
    given = own.parse_args()
    bench = start(given)
    close(given, bench, measures(bench, given.envs))


def close(given: argparse.Namespace, bench: Bench, measures: Sequence[Measure]) -> None:
    """Print the table and write it where the flags say."""
    facts = machine(bench)
    print(", ".join(f"{name} {facts[name]}" for name in ("cpu", "cores", "threads", "device", "torch", "load")))
    print(table(measures))
    if given.json is not None:
        write(given.json, bench, measures)
