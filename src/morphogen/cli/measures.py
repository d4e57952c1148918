"""Measured numbers: medians with half the quartile range, the machine they were measured on, and both as a table."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from morphogen import kernels
from morphogen.storage import atomic_write

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Measure:
    """One row of the table: the median over the runs, and half the range between the quartiles."""

    name: str
    value: float
    spread: float
    runs: int
    unit: str  # ratio, share, ms, ...


def median_measure(name: str, values: Sequence[float], unit: str) -> Measure:
    """The median of values that were measured one by one."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Measure(name, statistics.median(values), (high - low) / 2, len(values), unit)


def ratio_measure(name: str, above: Sequence[float], below: Sequence[float], unit: str = "ratio") -> Measure:
    """The median of the ratios of runs that followed each other."""
    return median_measure(name, [a / b for a, b in zip(above, below, strict=True)], unit)


def machine_facts(*, device: str, threads: int) -> dict[str, Any]:
    """Machine, versions and settings of a measurement."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "tensordict", "torchrl")},
        "kernels": kernels.AVAILABLE,
        "convolutions": kernels.CAN_CONVOLVE,  # by a kernel too
    }


def _cpu_name() -> str:
    """Name of the processor, as far as the system tells."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def machine_line(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    return ", ".join(f"{name} {facts[name]}" for name in ("cpu", "cores", "threads", "device", "torch", "load"))


def format_measures(measures: Iterable[Measure]) -> str:
    """One line per measure."""
    return "\n".join(
        f"{one.name:34} {one.value:10.3f} +- {one.spread:7.3f} {one.unit:12} {one.runs:3} runs" for one in measures
    )


def write_measures(path: Path, facts: Mapping[str, Any], measures: Iterable[Measure]) -> None:
    """The machine and the table as JSON; a file that is there is replaced in one step.

    facts: of the machine, with checksums of what was computed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write.write_atomic(
        path, atomic_write.json_bytes({"machine": facts, "measures": [asdict(one) for one in measures]})
    )
