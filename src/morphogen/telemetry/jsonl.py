"""Events as JSON lines, and back."""

import json
from dataclasses import fields

from morphogen.telemetry.events import COORDINATES, Envelope, Event, Json
from morphogen.telemetry.kinds import env, epoch, ppo, round, run, slot
from morphogen.vocab.text import format_value

FORMAT = 2
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
HEAD_KEYS = ("v", "seq", "time", "rank", "event")
EVENT_KINDS: dict[str, type[Event]] = {
    kind.NAME or kind.__name__: kind
    for module in (run, round, ppo, epoch, env, slot)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
}


def encode(event: Envelope, *, seq: int, time: float, rank: int = 0) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    head: Json = {"v": FORMAT, "seq": seq, "time": float(f"{time:.3f}"), "rank": rank, "event": event.name}
    late = {"late": True} if event.late else {}
    whole = {**head, "severity": event.severity, **event.where, **late, "data": event.data.payload()}
    return _ENCODER.encode(whole) + "\n"


def decode(text: str) -> Envelope:
    """The event of a line; a ValueError where a key is unknown or missing, or a value is not of its type."""
    whole = json.loads(text)
    if not isinstance(whole, dict):
        raise ValueError(f"a line holds {format_value(whole)}; want an object")
    _check_keys("line", set(whole) - {*COORDINATES, "late"}, {*HEAD_KEYS, "severity", "data"})
    if whole["v"] != FORMAT:
        raise ValueError(
            f"format: expected {FORMAT}, got {format_value(whole['v'])}: another version of morphogen wrote it"
        )
    if not isinstance(whole["event"], str) or whole["event"] not in EVENT_KINDS:
        raise ValueError(f"event {format_value(whole['event'])} is unknown")
    if not isinstance(whole["data"], dict):
        raise ValueError(f"{whole['event']} holds {format_value(whole['data'])}; want an object")
    kind = EVENT_KINDS[whole["event"]]
    names = {one.name.rstrip("_"): one.name for one in fields(kind)}  # type: ignore[arg-type]
    _check_keys(whole["event"], set(whole["data"]), set(names))
    data = kind(**{names[key]: value for key, value in whole["data"].items()})
    more = {name: whole[name] for name in (*COORDINATES, "late", "severity") if name in whole}
    return Envelope(data, **more)


def _check_keys(what: str, found: set[str], want: set[str]) -> None:
    if found != want:
        raise ValueError(f"{what} has the keys {sorted(found)}; want {sorted(want)}")
