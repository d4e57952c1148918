"""What a device says about itself, without being waited for."""

from typing import Any

import torch


def memory_stats(device: torch.device) -> tuple[dict[str, Any], ...]:
    """What the allocator of a CUDA device holds, peaks since the process began; () on a CPU."""
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
    """What the device is called; `cpu` for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
