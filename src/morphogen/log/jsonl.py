"""Events as JSON lines, and back.  In a line rounds count from 1, in objects from 0.

An event about the run is one line; all events about a round are one line with `round` and `events`.
"""

import json
from collections.abc import Sequence
from functools import cache

from pydantic import ValidationError

from morphogen.config.registry import extra_parts
from morphogen.log.codec import describe_fault
from morphogen.log.events import Envelope, Event, Json, field_names
from morphogen.log.kinds import epoch, ppo, round, run
from morphogen.vocab.text import format_value

FORMAT = 4
HEAD = ("v", "seq", "time")
# Field of an event that is the number of a round, besides the coordinate of the envelope.
ROUND_FIELDS = {"RoundCompleted": "round", "RunCompleted": "best_round"}
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


@cache
def event_kinds() -> dict[str, type[Event]]:
    """Return the kinds of events by name, of the core and of extras."""
    core = {
        kind.NAME: kind
        for module in (run, round, ppo, epoch)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
    }
    derived = [rule.kind for rules in extra_parts("morphogen.events").values() for rule in rules]
    monitored = [kind for part in extra_parts("morphogen.monitors").values() for kind in part.KINDS]
    return core | {kind.NAME: kind for kind in (*derived, *monitored)}


def encode(event: Envelope, *, seq: int, time: float) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    return _encode_line(_pack(event), seq, time)


def encode_round(events: Sequence[Envelope], *, seq: int, time: float) -> str:
    """The line of all events about a round."""
    parts = [_pack(event) for event in events]
    rounds = {part.pop("round", None) for part in parts}
    if len(rounds) != 1:
        raise ValueError("events: expected events about one round")
    return _encode_line({"round": rounds.pop(), "events": parts}, seq, time)


def _encode_line(content: Json, seq: int, time: float) -> str:
    head = {"v": FORMAT, "seq": seq, "time": float(f"{time:.3f}")}
    return _ENCODER.encode(head | content) + "\n"


def _pack(event: Envelope) -> Json:
    where = _shift_round(event.where, "round", 1)
    data = _shift_round(event.data.payload(), ROUND_FIELDS.get(event.name, ""), 1)
    return {"event": event.name, "severity": event.severity, **where, "data": data}


def decode(text: str) -> tuple[Envelope, ...]:
    """The events of a line; a ValueError or KeyError for an unknown or missing key, or a value of
    another type.
    """
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError(f"line: expected an object, got {format_value(line)}")
    if line.get("v") != FORMAT:
        raise ValueError(
            f"format: expected {FORMAT}, got {format_value(line.get('v'))}: another version of "
            "morphogen wrote it"
        )
    for name in HEAD:
        del line[name]
    if "events" not in line:
        return (_unpack(line),)
    parts = line.pop("events")
    _check_keys("line", line, {"round"})
    return tuple(_unpack({**part, **line}) for part in parts)


def _unpack(line: Json) -> Envelope:
    """The event of a line, or of a part of one."""
    name = line.pop("event")
    kind = event_kinds().get(name)
    if kind is None:
        raise ValueError(f"event: unknown {format_value(name)}")
    data = _shift_round(line.pop("data"), ROUND_FIELDS.get(name, ""), -1)
    attributes = {shown: attribute for attribute, shown in field_names(kind).items()}
    # fields with a default are younger than some logs
    younger = {shown for shown, attribute in attributes.items() if hasattr(kind, attribute)}
    _check_keys(name, data, set(attributes) - (younger - data.keys()))
    try:
        payload = kind(**{attributes[key]: value for key, value in data.items()})
        return Envelope(payload, **_shift_round(line, "round", -1))
    except ValidationError as error:
        raise ValueError(describe_fault(error, name)) from None


def _shift_round(values: Json, name: str, by: int) -> Json:
    """Change the count of a round; an invalid number is left to the check of its event."""
    number = values.get(name)
    return {**values, name: number + by} if type(number) is int else values


def _check_keys(what: str, values: Json, expected: set[str]) -> None:
    if values.keys() != expected:
        raise ValueError(f"{what}: expected the keys {sorted(expected)}, got {sorted(values)}")
