"""Check of an event against its run: its envs and slots exist, its rows have the sizes of the run."""

from collections.abc import Iterator
from typing import Any

from morphogen.telemetry.events import Envelope, EpochEvent
from morphogen.telemetry.kinds.env import EpisodeCompleted
from morphogen.telemetry.kinds.epoch import RewardsPaid
from morphogen.telemetry.kinds.run import RunStarted
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.text import format_value

BLUEPRINTS = frozenset(blueprint.label for blueprint in Blueprint)
FREE_WIDTH = ("acc_table", "op_prob", "op_legal", "log_prob", "entropy")  # rows over anything but slots
RAGGED_FIELDS = ("others",)  # rows of any length: a choice that was forced has no others
MAX_ENVS, MAX_SLOTS = 2**20, 2**10


def find_misfit(start: RunStarted, event: Envelope) -> str | None:
    """Return the fault of an event of a run, None if it fits.  The first event is its own start."""
    if isinstance(event.data, RunStarted):
        return next(_start_errors(event.data), None)
    found = (*_coordinate_errors(start, event), *_blueprint_errors(start, event.data), *_row_errors(start, event.data))
    return f"{event.name} {found[0]}" if found else None


def _start_errors(data: RunStarted) -> Iterator[str]:
    for name, most in (("envs", MAX_ENVS), ("world", data.envs), ("rounds", None), ("epochs", None)):
        value = getattr(data, name)
        if value < 1 or (most is not None and value > most):
            yield f"RunStarted.{name} is {value}; want 1 .. {most}" if most else f"RunStarted.{name} is 0; want >= 1"
    if not 1 <= len(data.slots) <= MAX_SLOTS or len(set(data.slots)) < len(data.slots):
        yield f"RunStarted.slots is {format_value(list(data.slots))}; want 1 .. {MAX_SLOTS} names, each once"


def _coordinate_errors(start: RunStarted, event: Envelope) -> Iterator[str]:
    for name, count in (("epoch", start.epochs), ("env", start.envs)):
        value = getattr(event, name)
        if value is not None and value >= count:
            yield f"has {name} {value}; the run has {count}"
    if event.slot is not None and event.slot not in start.slots:
        yield f"has slot {format_value(event.slot)}; the run has {', '.join(start.slots)}"


def _blueprint_errors(start: RunStarted, data: Any) -> Iterator[str]:
    seeds = data.topology if isinstance(data, EpisodeCompleted) else ()
    for name in (getattr(data, "blueprint", None), *(seed["blueprint"] for seed in seeds)):
        if isinstance(name, str) and name not in BLUEPRINTS:
            yield f"names the blueprint {format_value(name)}; want one of {', '.join(sorted(BLUEPRINTS))}"
    slots = [seed["slot"] for seed in seeds]
    if not set(slots) <= set(start.slots) or len(set(slots)) < len(slots):
        yield f"has seeds in {format_value(slots)}; the run has {', '.join(start.slots)}, each once"


def _row_errors(start: RunStarted, data: Any) -> Iterator[str]:
    """Rows over envs, those of one process, and in them over slots or over what the kind says."""
    if not isinstance(data, EpochEvent):
        return
    named = data.names if isinstance(data, RewardsPaid) else start.slots
    tables = {name: rows for name, rows in data.payload().items() if not (rows is named and name == "names")}
    counts = {len(rows) for rows in tables.values()}
    if len(counts) > 1 or not 1 <= min(counts) <= start.envs:
        yield f"has {', '.join(map(str, sorted(counts)))} envs in its rows; want as many in each, of {start.envs}"
    for name, rows in tables.items():
        sizes = {len(row) for row in rows if isinstance(row, tuple)}
        if name in RAGGED_FIELDS or (name in FREE_WIDTH and 0 not in sizes):
            continue
        if sizes - {len(named)}:
            yield f"has {', '.join(map(str, sorted(sizes)))} numbers in the rows of {name}; want {len(named)}"
