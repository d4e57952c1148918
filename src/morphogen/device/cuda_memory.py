"""Facts about a device that do not wait for it."""

from typing import Any

import torch


def memory_stats(device: torch.device) -> tuple[dict[str, Any], ...]:
    """Memory of the allocator of a CUDA device, peaks since the process began; () on a CPU."""
    if device.type != "cuda":
        return ()
    found = torch.cuda.memory_stats(device)
    return (
        {
            "device": str(device),
            "allocated_bytes": found.get("allocated_bytes.all.current", 0),
            "reserved_bytes": found.get("reserved_bytes.all.current", 0),
            "peak_bytes": found.get("allocated_bytes.all.peak", 0),
            "total_bytes": torch.cuda.get_device_properties(device).total_memory,
            "retries": found.get("num_alloc_retries", 0),
            "ooms": found.get("num_ooms", 0),
        },
    )


def device_name(device: torch.device) -> str:
    """Name of the device; `cpu` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
