"""Two runs that should be the same: where their files differ, clocks aside."""

import csv
import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from morphogen.log import run_directory
from morphogen.state.tensor_trees import load_tree
from morphogen.train import checkpoint_store
from morphogen.vocab.paths import POLICY_FILE

# Clocks, places and graphs of a process: names of fields, of metrics and of entries of a
# checkpoint.
CLOCKS = ("time", "seconds", "phases", "run_id", "command", "inode", "graphs", "graph_fallbacks")
CLOCK_ENDS = ("_s", "_per_s", "_time_share", "_bytes")
TABLES = "metrics/csv/*.csv"
FILES = (run_directory.CONFIG, run_directory.RESULT)  # the same byte for byte


def timed(name: str) -> bool:
    """Return whether a field of this name holds a time."""
    return name in CLOCKS or name.endswith(CLOCK_ENDS)


def timeless(value: Any) -> Any:
    """A JSON value or a checkpoint tree without what clocks said."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if not timed(str(name))}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def lines(run: Path) -> list[dict[str, Any]]:
    """The lines of the event file of a run as JSON, without clocks."""
    return [
        timeless(json.loads(line)) for line in (run / run_directory.EVENTS).read_text().splitlines()
    ]


def events(run: Path) -> list[dict[str, Any]]:
    """The events of these lines."""
    return [event for line in lines(run) for event in split_line(line)]


def split_line(line: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a line: several of a round, one otherwise."""
    common = {name: value for name, value in line.items() if name != "events"}
    return [{**common, **event} for event in line.get("events", [{}])]


def records(run: Path) -> list[str]:
    """Names of the records of rounds."""
    return sorted(
        path.relative_to(run).as_posix() for path in (run / run_directory.RECORDS).glob("*")
    )


def leaves(tree: Any, above: str = "") -> dict[str, Any]:
    """The leaves of nested dicts by path."""
    if not isinstance(tree, dict):
        return {above: tree}
    return {
        path: leaf
        for key, value in tree.items()
        for path, leaf in leaves(value, f"{above}.{key}").items()
    }


def same(one: Any, other: Any) -> bool:
    """Bit for bit: also the sign of a zero, and NaN."""
    if not (torch.is_tensor(one) and torch.is_tensor(other)):
        return repr(one) == repr(other)
    return (one.dtype, one.shape) == (other.dtype, other.shape) and raw(one) == raw(other)


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def tree_differences(one: Any, other: Any, where: str) -> Iterator[str]:
    """Differences between two trees, by path."""
    left, right = leaves(one), leaves(other)
    for path in [*left, *(path for path in right if path not in left)]:
        if path not in left or path not in right:
            yield f"{where}{path} is only in {'the first' if path in left else 'the second'}"
        elif not same(left[path], right[path]):
            yield f"{where}{path} is {left[path]} and {right[path]}"


def differences(one: Path, other: Path) -> Iterator[str]:
    """Differences between an undisturbed run and another one, without times."""
    yield from _bytes(one, other, (*FILES, *sorted({*records(one), *records(other)})))
    yield from tree_differences(_manifest(one), _manifest(other), run_directory.MANIFEST)
    yield from _event_differences(lasting(events(one)), lasting(events(other)))
    yield from _gaps(other)
    yield from tree_differences(_saved(one), _saved(other), checkpoint_store.STATE)
    yield from tree_differences(*(_torch(run / POLICY_FILE) for run in (one, other)), POLICY_FILE)
    yield from _table_differences(one, other)


def same_policy(one: Path, other: Path) -> bool:
    """Return whether the trained policies of two runs have the same bits."""
    first, second = (load_file(run / POLICY_FILE) for run in (one, other))
    return not list(tree_differences(first, second, ""))


def lasting(reported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events that do not tell of interruptions: not that the run went on, nor what was saved inside
    a round.
    """
    kept = [{name: value for name, value in event.items() if name != "seq"} for event in reported]
    return [event for event in kept if event["event"] != "RunResumed" and not _inside(event)]


def _inside(event: dict[str, Any]) -> bool:
    return event["event"] == "CheckpointSaved" and not event["data"]["path"].endswith("-epoch-0000")


def _event_differences(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> Iterator[str]:
    for number, (left, right) in enumerate(zip_longest(one, other)):
        if left != right:
            yield f"{run_directory.EVENTS}: event {number} is {left} and {right}"


def _gaps(run: Path) -> Iterator[str]:
    numbers = [line["seq"] for line in lines(run)]
    if numbers != list(range(len(numbers))):
        at = next(i for i, number in enumerate(numbers) if number != i)
        yield f"{run_directory.EVENTS}: line {at} has number {numbers[at]}"


def _bytes(one: Path, other: Path, names: Any) -> Iterator[str]:
    for name in names:
        left, right = (
            (run / name).read_bytes() if (run / name).is_file() else None for run in (one, other)
        )
        if left != right:
            yield f"{name} is {short(left)} and {short(right)}"


def short(data: bytes | None) -> str:
    """The beginning of a file."""
    return repr(data[:400] if data else data)


def _manifest(run: Path) -> Any:
    return timeless(json.loads((run / run_directory.MANIFEST).read_bytes()))


def _saved(run: Path) -> Any:
    """The newest checkpoint without the length of the event file, which holds times."""
    newest = max((run / run_directory.CHECKPOINTS).iterdir())
    tree = timeless(_torch(newest / checkpoint_store.STATE))
    return {name: inner for name, inner in tree.items() if name != "log"}


def _torch(path: Path) -> Any:
    return load_tree(path, label="file")


def _table_differences(one: Path, other: Path) -> Iterator[str]:
    for name in sorted(
        {path.relative_to(run).as_posix() for run in (one, other) for path in run.glob(TABLES)}
    ):
        left, right = (_table(run / name) for run in (one, other))
        if left != right:
            yield f"{name} is {left!r} and {right!r}"


def _table(path: Path) -> list[list[str]] | None:
    """Header and rows, without the columns of clocks; None without a file."""
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    kept = [at for at, name in enumerate(header) if not timed(name.rpartition("/")[2])]
    return [[row[at] for at in kept] for row in (header, *rows)]
