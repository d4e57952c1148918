"""Events as JSON lines, and back, and their check against a run.  In a line rounds count from 1, in objects from 0."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from morphogen.telemetry.events import COORDINATES, Envelope, EpochEvent, Event, Json, field_names
from morphogen.telemetry.kinds import epoch, ppo, round, run
from morphogen.telemetry.kinds.epoch import EpisodeCompleted
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.vocab.action import HEADS
from morphogen.vocab.text import format_value

FORMAT = 3
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
KEYS = {"v", "seq", "time", "rank", "event", "severity", "data"}
EVENT_KINDS: dict[str, type[Event]] = {
    kind.NAME: kind
    for module in (run, round, ppo, epoch)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
}
# Field of an event that is the number of a round, besides the coordinate of the envelope.
ROUND_FIELDS = {"RoundCompleted": "round", "RunCompleted": "best_round", "TelemetryEscalated": "until_round"}


def encode(event: Envelope, *, seq: int, time: float, rank: int = 0) -> str:
    """One JSON object, keys in the order of the envelope, ASCII only, newline at the end."""
    head: Json = {"v": FORMAT, "seq": seq, "time": float(f"{time:.3f}"), "rank": rank, "event": event.name}
    where = _shift_round(event.where, "round", 1)
    data = _shift_round(event.data.payload(), ROUND_FIELDS.get(event.name), 1)
    return _ENCODER.encode({**head, "severity": event.severity, **where, "data": data}) + "\n"


def decode(text: str) -> Envelope:
    """The event of a line; a ValueError where a key is unknown or missing, or a value is not of its type."""
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError(f"line: expected an object, got {format_value(line)}")
    if line.get("v", FORMAT) != FORMAT:
        raise ValueError(
            f"format: expected {FORMAT}, got {format_value(line['v'])}: another version of morphogen wrote it"
        )
    _check_keys("line", set(line) - {*COORDINATES}, KEYS)
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


# Rows over anything but slots.
FREE_WIDTH = ("acc_table", "op_prob", "choices", "log_prob", "entropy", *(f"{head}_legal" for head in HEADS))
BY_COMPONENT = ("components", "totals", "norm")  # rows over the names of the event
RAGGED_FIELDS = ("others",)  # rows of any length: a choice that was forced has no others
MAX_ENVS, MAX_SLOTS = 2**20, 2**10


def find_misfit(start: RunStarted, event: Envelope) -> str | None:
    """Return the fault of an event of a run, None if it fits.  The first event is its own start."""
    if isinstance(event.data, RunStarted):
        return next(_start_errors(event.data), None)
    faults = (*_place_errors(start, event), *_row_errors(start, event.data))
    return f"{event.name}.{faults[0]}" if faults else None


def _start_errors(data: RunStarted) -> Iterator[str]:
    for name, most in (("envs", MAX_ENVS), ("world", data.envs), ("rounds", None), ("epochs", None)):
        value = getattr(data, name)
        if value < 1 or (most is not None and value > most):
            yield f"RunStarted.{name}: expected {f'1 .. {most}' if most else '>= 1'}, got {value}"
    if not 1 <= len(data.slots) <= MAX_SLOTS or len(set(data.slots)) < len(data.slots):
        names = format_value(list(data.slots))
        yield f"RunStarted.slots: expected 1 .. {MAX_SLOTS} names, each once, got {names}"


def _place_errors(start: RunStarted, event: Envelope) -> Iterator[str]:
    for name, count in (("epoch", start.epochs), ("env", start.envs)):
        value = getattr(event, name)
        if value is not None and value >= count:
            yield f"{name}: expected one of the {count} of the run, got {value}"
    if event.slot is not None and event.slot not in start.slots:
        yield f"slot: expected one of {', '.join(start.slots)}, got {format_value(event.slot)}"
    seeds = event.data.topology if isinstance(event.data, EpisodeCompleted) else ()
    for name in (getattr(event.data, "blueprint", None), *(seed["blueprint"] for seed in seeds)):
        if isinstance(name, str) and name not in start.blueprints:
            yield f"blueprint: expected one of {', '.join(start.blueprints)}, got {format_value(name)}"
    slots = [seed["slot"] for seed in seeds]
    if not set(slots) <= set(start.slots) or len(set(slots)) < len(slots):
        yield f"topology: expected seeds in {', '.join(start.slots)}, each once, got {format_value(slots)}"


def _row_errors(start: RunStarted, data: Any) -> Iterator[str]:
    """Rows over envs, those of one process, and in them over slots or over what the kind says."""
    if not isinstance(data, EpochEvent):
        return
    tables = data.payload()
    names = tables.pop("names", ())
    counts = {len(rows) for rows in tables.values()}
    if len(counts) > 1 or not 1 <= min(counts) <= start.envs:
        yield f"rows: expected equal numbers of at most {start.envs} envs, got {', '.join(map(str, sorted(counts)))}"
    for name, rows in tables.items():
        sizes = {len(row) for row in rows if isinstance(row, tuple)}
        if name in RAGGED_FIELDS or (name in FREE_WIDTH and 0 not in sizes):
            continue
        width = len(names) if name in BY_COMPONENT else len(start.slots)
        if sizes - {width}:
            yield f"{name}: expected {width} numbers in each row, got {', '.join(map(str, sorted(sizes)))}"


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Sha256 of a manifest as canonical JSON: sorted keys, no spaces."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
