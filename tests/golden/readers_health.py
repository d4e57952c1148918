"""Readers of golden rows: gradients of seeds and of the layers of the policy."""

from collections.abc import Callable

import pytest
import torch
from support.manual_gates import by_hand

from morphogen.hosts.blocks import grad_stats, index_params
from morphogen.rules.health import gradient_health, gradient_ratio, layer_health


def close(value: float) -> object:
    """Equal to six digits, whatever the size."""
    return pytest.approx(value, rel=1e-6, abs=1e-30)


def read_gradient_health(row: dict, dtype: torch.dtype) -> None:
    tensors = [torch.tensor([float(x) for x in tensor], dtype=dtype) for tensor in row["gradients"]]
    push, limits = torch.cat(tensors), by_hand()
    whose = torch.arange(len(tensors)).repeat_interleave(
        torch.tensor([tensor.numel() for tensor in tensors])
    )
    index = index_params(whose, torch.zeros(len(tensors), dtype=torch.int64), owners=1)
    found = grad_stats(
        push, index, push.new_zeros(1, 1), vanishing=limits.vanishing, exploding=limits.exploding
    )
    assert float(gradient_health(found, found.norm.isfinite())) == close(row["health"])
    assert bool(found.vanishing > 0) == row["vanishing"]
    assert bool(found.exploding > 0) == row["exploding"]
    if isinstance(row["norm"], float):
        assert float(found.norm) == close(row["norm"])


def read_gradient_ratio(row: dict, dtype: torch.dtype) -> None:
    norms = {name: torch.tensor(row[f"{name}_norm"], dtype=dtype) for name in ("seed", "host")}
    counts = {name: torch.tensor(row[f"{name}_params"]) for name in ("seed", "host")}
    assert float(
        gradient_ratio(norms["seed"], counts["seed"], norms["host"], counts["host"])
    ) == close(row["ratio"])


def read_layer_health(row: dict, dtype: torch.dtype) -> None:
    shares = (torch.tensor(row[f"{name}_fraction"], dtype=dtype) for name in ("zero", "large"))
    health, dead, exploding = layer_health(*shares, torch.tensor(row["nonfinite"] == 0))
    assert float(health) == close(row["health"])
    assert (bool(dead), bool(exploding)) == (row["dead"], row["exploding"])


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "telemetry.gradient_health": read_gradient_health,
    "telemetry.gradient_ratio": read_gradient_ratio,
    "telemetry.layer_health": read_layer_health,
}
