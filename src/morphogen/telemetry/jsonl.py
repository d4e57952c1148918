"""Events as JSON lines, and back.  In a line rounds count from 1, in the objects from 0."""

import json

from morphogen.telemetry.events import COORDINATES, Envelope, Event, Json, field_names
from morphogen.telemetry.kinds import env, epoch, ppo, round, run, slot
from morphogen.vocab.text import format_value

FORMAT = 3
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
KEYS = {"v", "seq", "time", "rank", "event", "severity", "data"}
EVENT_KINDS: dict[str, type[Event]] = {
    kind.NAME or kind.__name__: kind
    for module in (run, round, ppo, epoch, env, slot)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
}
# Field of an event that is the number of a round, besides the coordinate of the envelope.
ROUND_FIELDS = {"RoundCompleted": "round", "RunCompleted": "best_round", "TelemetryEscalated": "until_round"}


def encode(event: Envelope, *, seq: int, time: float, rank: int = 0) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    head: Json = {"v": FORMAT, "seq": seq, "time": float(f"{time:.3f}"), "rank": rank, "event": event.name}
    late = {"late": True} if event.late else {}
    where = _shift_round(event.where, "round", 1)
    data = _shift_round(event.data.payload(), ROUND_FIELDS.get(event.name), 1)
    return _ENCODER.encode({**head, "severity": event.severity, **where, **late, "data": data}) + "\n"


def decode(text: str) -> Envelope:
    """The event of a line; a ValueError where a key is unknown or missing, or a value is not of its type."""
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError(f"line: expected an object, got {format_value(line)}")
    if line.get("v", FORMAT) != FORMAT:
        raise ValueError(
            f"format: expected {FORMAT}, got {format_value(line['v'])}: another version of morphogen wrote it"
        )
    _check_keys("line", set(line) - {*COORDINATES, "late"}, KEYS)
    name, data = line["event"], line["data"]
    if not isinstance(name, str) or name not in EVENT_KINDS:
        raise ValueError(f"event: unknown {format_value(name)}")
    if not isinstance(data, dict):
        raise ValueError(f"{name}: expected an object, got {format_value(data)}")
    attributes = {shown: attribute for attribute, shown in field_names(EVENT_KINDS[name]).items()}
    _check_keys(name, set(data), set(attributes))
    data = _shift_round(data, ROUND_FIELDS.get(name), -1)
    payload = EVENT_KINDS[name](**{attributes[key]: value for key, value in data.items()})
    where = _shift_round({key: line[key] for key in COORDINATES if key in line}, "round", -1)
    return Envelope(payload, **where, **{key: line[key] for key in ("late", "severity") if key in line})


def _shift_round(values: Json, name: str | None, by: int) -> Json:
    """Change the count of a round; an invalid number is left to the check of its event."""
    number = values.get(name) if name is not None else None
    if type(number) is not int:
        return values
    if number + by < 0:
        raise ValueError(f"{name}: expected an integer >= 1, got {number}")
    return {**values, str(name): number + by}


def _check_keys(what: str, keys: set[str], expected: set[str]) -> None:
    if keys != expected:
        raise ValueError(f"{what}: expected the keys {sorted(expected)}, got {sorted(keys)}")
