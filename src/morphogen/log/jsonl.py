"""Events as JSON lines, and back.  In a line rounds count from 1, in objects from 0.

Format 4: an event about the run is one line; all events about a round are one line with `round` and
`events`.
Format 3, which is still read: every event is a line of its own, with `rank`.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from morphogen.config.parts import EVENTS, MONITORS
from morphogen.log.events import COORDINATES, Envelope, Event, Json, field_names
from morphogen.log.kinds import epoch, ppo, round, run
from morphogen.vocab.text import format_value

FORMAT = 4
FORMER = 3
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
HEAD = {"v", "seq", "time"}
KEYS = {"event", "severity", "data"}
ROUND_KEYS = {*HEAD, "round", "events"}
RETIRED = ("TelemetryEscalated",)  # events of format 3 that are not read
# Field of an event that is the number of a round, besides the coordinate of the envelope.
ROUND_FIELDS = {"RoundCompleted": "round", "RunCompleted": "best_round"}


@cache
def event_kinds() -> dict[str, type[Event]]:
    """Return the kinds of events by name, of the core and of extras."""
    core = {
        kind.NAME: kind
        for module in (run, round, ppo, epoch)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
    }
    derived = [rule.kind for name in EVENTS.builtin() for rule in EVENTS[name]]
    monitored = [kind for name in MONITORS.builtin() for kind in MONITORS[name].KINDS]
    return core | {kind.NAME: kind for kind in (*derived, *monitored)}


def encode(event: Envelope, *, seq: int, time: float) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    return _encode_line({**_head(seq, time), **_pack(event)})


def encode_round(events: Sequence[Envelope], *, seq: int, time: float) -> str:
    """The line of all events about a round."""
    number = events[0].round
    if number is None or any(event.round != number for event in events):
        raise ValueError("events: expected events about one round")
    parts = [_pack(event) for event in events]
    for part in parts:
        del part["round"]
    return _encode_line({**_head(seq, time), "round": number + 1, "events": parts})


def _encode_line(line: Json) -> str:
    return _ENCODER.encode(line) + "\n"


def _head(seq: int, time: float) -> Json:
    return {"v": FORMAT, "seq": seq, "time": float(f"{time:.3f}")}


def _pack(event: Envelope) -> Json:
    where = _shift_round(event.where, "round", 1)
    data = _shift_round(event.data.payload(), ROUND_FIELDS.get(event.name), 1)
    return {"event": event.name, "severity": event.severity, **where, "data": data}


def decode(text: str) -> tuple[Envelope, ...]:
    """The events of a line; a ValueError for an unknown or missing key, or a value of another
    type.
    """
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError(f"line: expected an object, got {format_value(line)}")
    version = line.get("v", FORMAT)
    if version not in (FORMAT, FORMER):
        raise ValueError(
            f"format: expected {FORMER} or {FORMAT}, got {format_value(version)}: another "
            "version of morphogen wrote it"
        )
    if version == FORMAT and "events" in line:
        return _decode_round(line)
    if line.get("event") in RETIRED:
        return ()
    head = HEAD if version == FORMAT else {*HEAD, "rank"}
    _check_keys("line", set(line) - {*COORDINATES}, head | KEYS)
    return (_unpack(line),)


def _decode_round(line: Json) -> tuple[Envelope, ...]:
    _check_keys("line", set(line), ROUND_KEYS)
    if not isinstance(line["events"], list):
        raise ValueError(f"events: expected a list, got {format_value(line['events'])}")
    events: list[Envelope] = []
    for part in line["events"]:
        if not isinstance(part, dict):
            raise ValueError(f"events: expected objects, got {format_value(part)}")
        _check_keys("event", set(part) - {*COORDINATES} | ({"round"} & set(part)), KEYS)
        events.append(_unpack({**part, "round": line["round"]}))
    return tuple(events)


def _unpack(line: Json) -> Envelope:
    name = line["event"]
    data = line["data"]
    if not isinstance(name, str) or name not in event_kinds():
        raise ValueError(f"event: unknown {format_value(name)}")
    if not isinstance(data, dict):
        raise ValueError(f"{name}: expected an object, got {format_value(data)}")
    kind = event_kinds()[name]
    attributes = {shown: attribute for attribute, shown in field_names(kind).items()}
    _check_keys(name, set(data), set(attributes))
    data = _shift_round(data, ROUND_FIELDS.get(name), -1)
    payload = kind(**{attributes[key]: value for key, value in data.items()})
    where = _shift_round({key: line[key] for key in COORDINATES if key in line}, "round", -1)
    return Envelope(payload, **where, severity=line["severity"])


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


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Sha256 of a manifest as canonical JSON: sorted keys, no spaces."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
