"""Facts about a device that never wait for the device."""

from typing import Any

import torch


def memory_stats(device: torch.device) -> tuple[dict[str, Any], ...]:
    """Return the allocator statistics of a CUDA device, peaks since the process began; () on a
    CPU.
    """
    if device.type != "cuda":
        return ()
    stats = torch.cuda.memory_stats(device)
    return (
        {
            "device": str(device),
            "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "peak_bytes": stats.get("allocated_bytes.all.peak", 0),
            "total_bytes": torch.cuda.get_device_properties(device).total_memory,
            "retries": stats.get("num_alloc_retries", 0),
            "ooms": stats.get("num_ooms", 0),
        },
    )


def device_name(device: torch.device) -> str:
    """Return the name of the device; `cpu` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
