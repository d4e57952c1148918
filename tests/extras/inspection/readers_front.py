"""Readers of golden rows: the Pareto front of episodes."""

from collections.abc import Callable

import pytest
import torch

from morphogen.extras.inspection.views import Point, hypervolume, pareto_front


def read_pareto(row: dict, dtype: torch.dtype) -> None:
    """Analytics are of Python numbers, whatever the dtype."""
    points = [Point(**episode) for episode in row["episodes"]]
    assert list(pareto_front(points)) == row["front"]
    accuracy, ratio = row["reference"]
    assert hypervolume(points, accuracy=accuracy, params_ratio=ratio) == pytest.approx(
        row["hypervolume"], rel=1e-12, abs=1e-12
    )


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {"telemetry.pareto": read_pareto}
