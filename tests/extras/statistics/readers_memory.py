"""Reader of golden rows: the size of the memory of a policy."""

from collections.abc import Callable

import pytest
import torch

from morphogen.extras.statistics.rollout_survey import hidden_stats


def read_hidden_health(row: dict, dtype: torch.dtype) -> None:
    found = hidden_stats(torch.tensor(row["hidden"], dtype=dtype))
    for name in ("rms", "env_rms_mean", "env_rms_max", "abs_max"):
        assert found[name].item() == pytest.approx(row[name], rel=1e-6, abs=1e-30), name
    assert int(found["nonfinite"]) == 0


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "telemetry.hidden_health": read_hidden_health
}
