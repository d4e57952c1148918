"""Files of runs of several ranks, read as one run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import run_comparison

import morphogen as mg
from morphogen.log import run_directory
from morphogen.log.jsonl import encode
from morphogen.state.tensor_trees import load_tree
from morphogen.train import checkpoint_store
from morphogen.vocab.paths import POLICY_FILE

RANK_FIELDS = ("world", "devices")  # besides the clocks
FILES = (run_directory.RESULT, POLICY_FILE, run_directory.CONFIG)


def events_of(run: Path) -> list[dict[str, Any]]:
    """Events of a run, without what tells of clocks, ranks, interruptions and saves."""
    lines = [json.loads(encode(event, seq=0, time=0.0)) for event in mg.events(run)]
    reported = run_comparison.lasting([run_comparison.timeless(line) for line in lines])
    for event in reported:
        event["data"] = {
            name: value for name, value in event["data"].items() if name not in RANK_FIELDS
        }
    kept = [event for event in reported if not event["event"].startswith("Checkpoint")]
    return [event for event in kept if event["data"].get("status") != "stopped"]


def differences(one: Path, other: Path) -> Iterator[Any]:
    """Differences between two runs: events, checkpoints that both have, and files of the end."""
    yield from (
        pair for pair in zip(events_of(one), events_of(other), strict=True) if pair[0] != pair[1]
    )
    saved = [
        {path.name for path in checkpoint_store.list_checkpoints(run / "checkpoints")}
        for run in (one, other)
    ]
    assert saved[0] & saved[1]
    for name in saved[0] & saved[1]:
        paths = [run / "checkpoints" / name / checkpoint_store.STATE for run in (one, other)]
        states = [{**load_tree(path, label="file"), "log": 0} for path in paths]
        yield from run_comparison.tree_differences(*map(run_comparison.timeless, states), name)
    names = [*FILES, *(str(path.relative_to(one)) for path in one.glob("networks/*"))]
    yield from (name for name in names if (one / name).read_bytes() != (other / name).read_bytes())
