"""Events in words: one line for what people should see while a run goes on."""

from collections.abc import Callable
from typing import Any

from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.env import RolledBack
from morphogen.telemetry.kinds.round import AnomalyDetected, PerformanceDropped, TrendDetected
from morphogen.telemetry.kinds.run import (
    CheckpointFailed,
    CheckpointSaved,
    RunResumed,
    SinkFailed,
    TelemetryDropped,
    TelemetryEscalated,
)
from morphogen.telemetry.kinds.slot import SeedFossilized, SeedGerminated, SeedPruned


def describe(event: Envelope) -> str | None:
    """Describe an event in one line; None if it has no line of its own."""
    say = DESCRIPTIONS.get(type(event.data))
    return None if say is None else say(event.data)


def format_position(event: Envelope) -> str:
    """`3:12 env 4 r0c0`: round and epoch, counted from 1, then env and slot, as far as they apply."""
    when = ":".join(str(one + 1) for one in (event.round, event.epoch) if one is not None)
    env = "" if event.env is None else f"env {event.env}"
    return " ".join(part for part in (when, env, event.slot) if part)


def format_counts(found: dict[str, int]) -> str:
    """`WAIT 1,020, PRUNE 3`; what is 0 is left out."""
    return ", ".join(f"{name} {count:,}" for name, count in found.items() if count)


def _format_number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _format_worth(contribution: float | None) -> str:
    return "" if contribution is None else f", worth {contribution:+.1f} points"


def _germination(data: SeedGerminated) -> str:
    return f"{data.blueprint} germinated, {data.params:,} parameters"


def _fossilization(data: SeedFossilized) -> str:
    return f"{data.blueprint} kept at age {data.age}{_format_worth(data.contribution)}"


def _pruning(data: SeedPruned) -> str:
    return f"{data.blueprint} pruned by {data.reason} at age {data.age}{_format_worth(data.contribution)}"


def _rollback(data: RolledBack) -> str:
    return f"rolled back ({data.reason}), {data.seeds_pruned} seeds pruned"


def _anomaly(data: AnomalyDetected) -> str:
    subject = "" if data.subject is None else f" of {data.subject}"
    return f"{data.kind}{subject}: {_format_number(data.value)}, limit {_format_number(data.limit)}"


def _performance_drop(data: PerformanceDropped) -> str:
    return f"accuracy fell to {_format_number(data.accuracy)} %, from {_format_number(data.rolling_accuracy)} %"


def _trend(data: TrendDetected) -> str:
    now, before = _format_number(data.rolling_accuracy), _format_number(data.previous)
    return f"{data.kind}: rolling accuracy {now} %, before {before} %"


def _escalation(data: TelemetryEscalated) -> str:
    return f"telemetry at debug until {data.until_round + 1}:{data.until_epoch + 1}, for {data.reason}"


def _drops(data: TelemetryDropped) -> str:
    return f"events that were not written: {format_counts(data.dropped)}"


DESCRIPTIONS: dict[type[Event], Callable[[Any], str]] = {
    SeedGerminated: _germination,
    SeedFossilized: _fossilization,
    SeedPruned: _pruning,
    RolledBack: _rollback,
    AnomalyDetected: _anomaly,
    PerformanceDropped: _performance_drop,
    TrendDetected: _trend,
    TelemetryEscalated: _escalation,
    TelemetryDropped: _drops,
    SinkFailed: lambda data: f"{data.sink} gets no more events: {data.error}",
    CheckpointSaved: lambda data: f"saved {data.path}",
    CheckpointFailed: lambda data: f"{data.path} was not saved: {data.error}",
    RunResumed: lambda data: f"resumed from {data.checkpoint}",
}
