"""Messages: one line per event that people should see during a run.  Rounds and epochs count from 1."""

from collections.abc import Mapping

from morphogen.telemetry.events import Envelope, mean_known
from morphogen.telemetry.kinds import epoch, round, run


def describe(event: Envelope) -> str | None:
    """Describe an event in one line; None if it has no line of its own."""
    match event.data:
        case epoch.SeedGerminated() as data:
            return f"{data.blueprint} germinated, {data.params:,} parameters"
        case epoch.SeedFossilized() as data:
            return f"{data.blueprint} kept at age {data.age}{_format_worth(data.contribution)}"
        case epoch.SeedPruned() as data:
            return f"{data.blueprint} pruned by {data.reason} at age {data.age}{_format_worth(data.contribution)}"
        case epoch.RolledBack() as data:
            return f"rolled back ({data.reason}), {data.seeds_pruned} seeds pruned"
        case round.AnomalyDetected() as data:
            subject = "" if data.subject is None else f" of {data.subject}"
            return f"{data.kind}{subject}: {_format_number(data.value)}, limit {_format_number(data.limit)}"
        case round.PerformanceDropped() as data:
            return f"accuracy fell to {_format_number(data.accuracy)} %, from {_format_number(data.rolling_accuracy)} %"
        case round.TrendDetected() as data:
            now, before = _format_number(data.rolling_accuracy), _format_number(data.previous)
            return f"{data.kind}: rolling accuracy {now} %, before {before} %"
        case run.TelemetryEscalated() as data:
            return f"telemetry at debug until {data.until_round + 1}:{data.until_epoch + 1}, for {data.reason}"
        case run.SinkFailed() as data:
            return f"{data.sink} gets no more events: {data.error}"
        case run.HeldOutPlayed() as data:
            value = _format_number(mean_known(data.network_value))
            return f"{data.policy}: value {value} on {len(data.network_value)} held-out instances"
        case run.CheckpointSaved() as data:
            return f"saved {data.path}"
        case run.CheckpointFailed() as data:
            return f"{data.path} was not saved: {data.error}"
        case run.RunResumed() as data:
            return f"resumed from {data.checkpoint}"
    return None


def format_position(event: Envelope) -> str:
    """`3:12 env 4 r0c0`: round and epoch, counted from 1, then env and slot, as far as they apply."""
    when = ":".join(str(index + 1) for index in (event.round, event.epoch) if index is not None)
    env = "" if event.env is None else f"env {event.env}"
    return " ".join(part for part in (when, env, event.slot) if part)


def format_counts(counts: Mapping[str, int]) -> str:
    """`WAIT 1,020, PRUNE 3`; what is 0 is left out."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def _format_number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _format_worth(contribution: float | None) -> str:
    return "" if contribution is None else f", worth {contribution:+.1f} points"
