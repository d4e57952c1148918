"""Events as JSON lines, and back."""

import json
from dataclasses import fields

from morphogen.run.telemetry import events, ppo
from morphogen.run.telemetry.events import Envelope, Event, Json

FORMAT = 1
COORDINATES = ("round", "epoch", "env", "episode", "slot")
KINDS: dict[str, type[Event]] = {
    kind.NAME or kind.__name__: kind
    for module in (events, ppo)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


def line(event: Envelope, *, seq: int, time: float, rank: int = 0) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    where = {name: getattr(event, name) for name in COORDINATES if getattr(event, name) is not None}
    head: Json = {"v": FORMAT, "seq": seq, "time": round(time, 3), "rank": rank, "event": event.name}
    whole = {**head, "severity": event.data.SEVERITY, **where, "data": event.data.payload()}
    return json.dumps(whole, allow_nan=False, separators=(",", ":")) + "\n"


def parse(text: str) -> Envelope:
    """The event of a line; a ValueError where a key is unknown or missing."""
    whole = json.loads(text)
    _same_keys("line", set(whole) - set(COORDINATES), {"v", "seq", "time", "rank", "event", "severity", "data"})
    if whole["v"] != FORMAT or whole["event"] not in KINDS:
        raise ValueError(f"event {whole['event']!r} of format {whole['v']!r} is unknown")
    kind = KINDS[whole["event"]]
    names = {one.name.rstrip("_"): one.name for one in fields(kind)}  # type: ignore[arg-type]
    _same_keys(whole["event"], set(whole["data"]), set(names))
    data = kind(**{names[key]: value for key, value in whole["data"].items()})
    return Envelope(data, **{name: whole[name] for name in COORDINATES if name in whole})


def _same_keys(what: str, found: set[str], want: set[str]) -> None:
    if found != want:
        raise ValueError(f"{what} has the keys {sorted(found)}; want {sorted(want)}")
