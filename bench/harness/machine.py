"""Machine, versions and settings of a measurement."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from morphogen import kernels

CPU_INFO = Path("/proc/cpuinfo")


def machine_facts(*, device: str, threads: int) -> dict[str, Any]:
    """Return machine, versions and settings of a measurement."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "device": device,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "tensordict", "torchrl")},
        "kernels": kernels.AVAILABLE,
        "convolutions": kernels.CAN_CONVOLVE,  # by a kernel too
    }
