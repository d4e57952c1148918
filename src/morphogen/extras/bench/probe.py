"""Measurement of a configuration in this process, and the machine that it runs on."""

import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from morphogen import kernels
from morphogen.config.spec import RunSpec
from morphogen.device.cuda_memory import device_name
from morphogen.device.malloc import process_memory
from morphogen.env.setup import build_setup
from morphogen.errors import DeviceError
from morphogen.log.writer import MemorySink
from morphogen.train.loop import Parts, Scheduler

CPU_INFO = Path("/proc/cpuinfo")
MIB = 2**20


def measure(spec: RunSpec) -> dict[str, Any]:
    """Run all rounds of a resolved spec.  Raises DeviceError if the device has too little memory.

    Returns: `machine`, `numbers` by their headings in the table, and `shares` of phases in a round.
    """
    sink = MemorySink()
    scheduler = Scheduler(build_setup(spec), Parts(sinks=(sink,)))
    device = scheduler.setup.device
    try:
        with torch.no_grad():
            rounds = scheduler.run()
        scheduler.reporter.close()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{device} has too little memory: {str(error).partition('.')[0]}"
        ) from None
    events: dict[str, list[Any]] = defaultdict(list)
    for event in sink.events:
        events[event.name].append(event.data)
    return {
        "machine": machine_facts(device=device_name(device), threads=torch.get_num_threads()),
        "checksum": statistics.fmean(cast("tuple[float, ...]", rounds[-1].env_reward)),
        "numbers": read_numbers(events),
        "shares": phase_shares([profile.phases for profile in events["PhaseProfile"][1:]]),
    }


def read_numbers(events: dict[str, list[Any]]) -> dict[str, float | None]:
    """Return rates and sizes from the events of all rounds, by name; the first round is the
    warm-up.
    """
    warm_up, *pace = events["Throughput"]
    rounds = events["RoundCompleted"]
    rates = [each.env_epochs_per_s for each in pace]
    memory = events.get("MemoryUsed")
    peak = memory[-1].peak_bytes if memory else process_memory("VmHWM")
    return {
        "env-epochs/s": statistics.median(rates),
        "+-": half_quartile_range(rates),
        "samples/s": statistics.median(each.samples_per_s for each in pace),
        "first round": warm_up.env_epochs_per_s,
        "compile s": sum(each.compile_s for each in events["Throughput"]),
        "graphs": sum(each.graphs for each in rounds),
        "fallbacks": sum(each.graph_fallbacks for each in rounds),
        "rolled back": sum(each.rollbacks for each in rounds[1:]),
        "peak MiB": None if peak is None else peak / MIB,
    }


def phase_shares(profiles: Sequence[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """Return the median share of each phase in a round, on the device clock if there is one."""
    shares: dict[str, list[float]] = defaultdict(list)
    for phases in profiles:
        seconds = {
            name: times["wall_s"] if times["device_s"] is None else times["device_s"]
            for name, times in phases.items()
        }
        for name, value in seconds.items():
            shares[name].append(value / sum(seconds.values()))
    return {name: statistics.median(values) for name, values in shares.items()}


def half_quartile_range(values: Sequence[float]) -> float:
    """Return half the range between the quartiles; 0 for one value."""
    low, high = np.percentile(values, (25, 75))
    return float(high - low) / 2


def machine_facts(*, device: str, threads: int) -> dict[str, Any]:
    """Return machine, versions and settings of a measurement."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "tensordict", "torchrl")},
        "kernels": kernels.AVAILABLE,
        "convolutions": kernels.CAN_CONVOLVE,  # by a kernel too
    }
