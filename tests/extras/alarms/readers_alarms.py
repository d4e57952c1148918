"""Readers of golden rows: the alarms."""

from collections.abc import Callable

import pytest
import torch

from morphogen.extras.alarms.alarm_table import judge, update_numbers
from morphogen.extras.alarms.limits import AlarmLimits
from morphogen.extras.alarms.round_alarms import accuracy_drop, gradient_drift

LIMITS = vars(AlarmLimits())


def kinds_of(update: dict[str, float], streaks: dict[str, int]) -> list[str]:
    numbers = update_numbers(update, LIMITS["kl_spike"])
    return sorted(one.data.kind for one in judge(numbers, LIMITS, streaks, round=0))


def read_numbers(*names: str) -> Callable[[dict, torch.dtype], None]:
    """A reader of rows that hold the numbers of one update; alarms read Python numbers, whatever
    the dtype.
    """

    def read(row: dict, dtype: torch.dtype) -> None:
        numbers = {name: float(row[name]) for name in names}
        assert kinds_of({"free_steps": 1.0, **numbers}, {}) == row["anomalies"]

    return read


def read_entropy(row: dict, dtype: torch.dtype) -> None:
    head = row["head"]
    streaks: dict[str, int] = {}
    assert LIMITS[f"entropy_{head}"] == row["threshold"]
    found = [kinds_of({f"entropy_head.{head}": value}, streaks) for value in row["entropies"]]
    assert [kinds == ["entropy_collapse"] for kinds in found] == row["fired"]


def read_drop(row: dict, dtype: torch.dtype) -> None:
    share = accuracy_drop(row["accuracy"], row["rolling_accuracy"], row["progress"], LIMITS)
    assert (share is not None) == row["fired"]


def read_gradient_drift(row: dict, dtype: torch.dtype) -> None:
    """Of Python numbers, whatever the dtype."""
    average = None
    for norm, drift, after in zip(row["norms"], row["drift"], row["ema_after"], strict=True):
        found = gradient_drift(norm, average)
        average = found[1]
        assert found == pytest.approx((drift, after), rel=1e-6, abs=1e-30)


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "telemetry.ratio": read_numbers("ratio_max", "ratio_min"),
    "telemetry.kl": read_numbers("kl"),
    "telemetry.value": read_numbers("value_loss", "td_error_abs_mean"),
    "telemetry.entropy_collapse": read_entropy,
    "telemetry.performance_drop": read_drop,
    "telemetry.gradient_drift": read_gradient_drift,
}
