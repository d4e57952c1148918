"""Events at the end of a round besides its summary, from its tally and the metrics of the update."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from morphogen.telemetry.event_tally import Array, RoundTally, action_counts, mask_hit_rates, reward_summary
from morphogen.telemetry.events import RoundEvent, tidy
from morphogen.telemetry.kinds.round import HiddenHealth, ObservationStats
from morphogen.telemetry.record_memory import RunFacts

Metrics = Mapping[str, Any]  # flat names, and flags `<name>_valid` beside those that may be missing
Scale = tuple[Array, Array]  # mean and standard deviation of every feature that the policy normalises


def round_events(tally: RoundTally, metrics: Metrics, first: Scale | None, facts: RunFacts) -> Iterator[RoundEvent]:
    """Actions, masks, rewards, observations, memory.  first: the scale after the first round of the run."""
    yield action_counts(tally, facts.slots)
    yield mask_hit_rates(tally)
    yield reward_summary(tally, facts.components, facts.envs)
    yield ObservationStats(
        **_event_fields("observation", metrics, ObservationStats), drift=scale_drift(normaliser_scale(metrics), first)
    )
    if "hidden.h_rms" in metrics:
        yield HiddenHealth(**_event_fields("hidden", metrics, HiddenHealth))


def normaliser_scale(metrics: Metrics) -> Scale | None:
    """Observation statistics of the policy after the round; None for a policy without them."""
    return (metrics["normaliser.mean"], metrics["normaliser.std"]) if "normaliser.mean" in metrics else None


def scale_drift(now: Scale | None, first: Scale | None) -> float | None:
    """Drift of the scale since the first round: mean distance of the means plus that of the deviations."""
    if now is None:
        return None
    return float(sum(np.abs(a - b).mean() for a, b in zip(now, now if first is None else first, strict=True)))


def _event_fields(group: str, metrics: Metrics, kind: type[RoundEvent]) -> dict[str, Any]:
    """The metrics of a group under the names of an event; None where one is missing or not valid."""
    names = [name for name in kind.__annotations__ if name != "drift"]
    keys = {name: f"{group}.{name}" for name in names}
    return {name: tidy(metrics[key]) if _is_valid(key, metrics) else None for name, key in keys.items()}


def _is_valid(key: str, metrics: Metrics) -> bool:
    return key in metrics and bool(metrics.get(f"{key}_valid", True))
