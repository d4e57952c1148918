"""Messages: one line per event that people should see during a run.  Rounds count from 1."""

from collections.abc import Mapping

from morphogen.log.events import Envelope, mean_known
from morphogen.log.kinds import round, run


def describe(event: Envelope) -> str | None:
    """Describe an event in one line; None if it has no line of its own."""
    match event.data:
        case round.AnomalyDetected() as data:
            subject = "" if data.subject is None else f" of {data.subject}"
            return (
                f"{data.kind}{subject}: {_format_number(data.value)}, limit "
                f"{_format_number(data.limit)}"
            )
        case round.PerformanceDropped() as data:
            return (
                f"accuracy fell to {_format_number(data.accuracy)} %, from "
                f"{_format_number(data.rolling_accuracy)} %"
            )
        case run.SinkFailed() as data:
            return f"{data.sink} gets no more events: {data.error}"
        case run.HeldOutPlayed() as data:
            value = _format_number(mean_known(data.network_value))
            return f"{data.policy}: value {value} on {len(data.network_value)} held-out instances"
        case run.CheckpointFailed() as data:
            return f"{data.path} was not saved: {data.error}"
    return None


def format_counts(counts: Mapping[str, int]) -> str:
    """`WAIT 1,020, PRUNE 3`; a count of 0 is left out."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def _format_number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
