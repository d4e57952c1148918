"""Readers of golden rows: the rules on anomalies."""

from collections.abc import Callable

import torch

from morphogen.config.telemetry_spec import AnomalyLimits
from morphogen.telemetry import anomaly

LIMITS = AnomalyLimits()._asdict()


def read_rule(rule: Callable, *names: str) -> Callable[[dict, torch.dtype], None]:
    """A reader of rows that hold the numbers of one update; rules read Python numbers, whatever the dtype."""

    def read(row: dict, dtype: torch.dtype) -> None:
        update = {"free_steps": 1.0, **{name: float(row[name]) for name in names}}
        assert sorted(one.kind for one in rule(update, LIMITS)) == row["anomalies"]

    return read


def read_entropy(row: dict, dtype: torch.dtype) -> None:
    head, low, fired = row["head"], {}, []
    assert LIMITS[f"entropy_{head}"] == row["threshold"]
    for value in row["entropies"]:
        found, low = anomaly.entropy_findings({f"entropy_head.{head}": float(value)}, low, LIMITS)
        fired.append([one.kind for one in found] == ["entropy_collapse"])
    assert fired == row["fired"]


def read_drop(row: dict, dtype: torch.dtype) -> None:
    assert (
        anomaly.accuracy_drop(row["accuracy"], row["rolling_accuracy"], row["progress"], LIMITS) is not None
    ) == row["fired"]


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "telemetry.ratio": read_rule(anomaly.ratio_findings, "ratio_max", "ratio_min"),
    "telemetry.kl": read_rule(anomaly.kl_findings, "kl"),
    "telemetry.value": read_rule(anomaly.critic_findings, "value_loss", "td_error_abs_mean"),
    "telemetry.entropy_collapse": read_entropy,
    "telemetry.performance_drop": read_drop,
}
