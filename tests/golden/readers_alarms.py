"""Readers of golden rows: the alarms."""

from collections.abc import Callable

import torch

from morphogen.config.telemetry_spec import AnomalyLimits
from morphogen.log import alarms

LIMITS = AnomalyLimits()._asdict()


def kinds_of(
    update: dict[str, float], streaks: dict[str, int] | None = None
) -> tuple[list[str], dict[str, int]]:
    numbers = alarms.update_numbers(update, LIMITS["kl_spike"])
    found, streaks = alarms.judge(numbers, LIMITS, streaks or {})
    return sorted(one.event.kind for one in found), streaks


def read_numbers(*names: str) -> Callable[[dict, torch.dtype], None]:
    """A reader of rows that hold the numbers of one update; alarms read Python numbers, whatever
    the dtype.
    """

    def read(row: dict, dtype: torch.dtype) -> None:
        found, _ = kinds_of({"free_steps": 1.0, **{name: float(row[name]) for name in names}})
        assert found == row["anomalies"]

    return read


def read_entropy(row: dict, dtype: torch.dtype) -> None:
    head, streaks, fired = row["head"], {}, []
    assert LIMITS[f"entropy_{head}"] == row["threshold"]
    for value in row["entropies"]:
        found, streaks = kinds_of({f"entropy_head.{head}": float(value)}, streaks)
        fired.append(found == ["entropy_collapse"])
    assert fired == row["fired"]


def read_drop(row: dict, dtype: torch.dtype) -> None:
    share = alarms.accuracy_drop(row["accuracy"], row["rolling_accuracy"], row["progress"], LIMITS)
    assert (share is not None) == row["fired"]


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "telemetry.ratio": read_numbers("ratio_max", "ratio_min"),
    "telemetry.kl": read_numbers("kl"),
    "telemetry.value": read_numbers("value_loss", "td_error_abs_mean"),
    "telemetry.entropy_collapse": read_entropy,
    "telemetry.performance_drop": read_drop,
}
