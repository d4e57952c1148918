"""Contents of a run directory or a checkpoint, as tables for the terminal.  No torch, nothing is written."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from morphogen.analysis.overview import overview
from morphogen.analysis.run_log import read_run
from morphogen.analysis.tables import Row
from morphogen.analysis.views import build_views
from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import to_settings
from morphogen.config.spec import RunSpec
from morphogen.errors import CheckpointError
from morphogen.storage import checkpoint_store, run_directory
from morphogen.vocab.text import escape_text

MAX_ROWS = 10  # rows of long tables
# Tables that are shown: heading -> its column.
TABLE_COLUMNS: dict[str, dict[str, str]] = {
    "rounds": {
        "round": "round",
        "accuracy %": "accuracy_mean",
        "committed %": "committed_mean",
        "value": "network_value_mean",
        "reward": "reward_mean",
        "x host": "params_ratio_mean",
        "success": "success_share",
        "hypervolume": "hypervolume",
        "rollbacks": "rollbacks",
    },
    "blueprints": {
        "blueprint": "blueprint",
        "germinated": "germinated",
        "fossilized": "fossilized",
        "pruned": "pruned.action",
        "by ramp": "pruned.ramp",
        "rolled back": "rolled_back",
        "alive": "alive",
        "contribution": "contribution_mean",
        "shapley": "shapley_mean",
        "params": "params",
    },
    "ops": {
        "op": "op",
        "sampled": "sampled",
        "took effect": "effective",
        "executed": "succeeded",
        "success": "success_share",
        "legal": "legal_share",
    },
    "masks": {"head": "head", "legal values": "choices_mean", "share with one": "single_share"},
    "verdicts": {"what": "what", "name": "name", "steps": "steps"},
    "front": {
        "round": "round",
        "env": "env",
        "committed %": "committed_accuracy",
        "params": "params",
        "x host": "params_ratio",
        "stability": "stability",
        "value": "network_value",
    },
    "throughput": {
        "round": "round",
        "env-epochs/s": "env_epochs_per_s",
        "samples/s": "samples_per_s",
        "rollout s": "rollout_s",
        "update s": "update_s",
        "host waits": "host_wait_time_share",
    },
    "anomalies": {name: name for name in ("round", "epoch", "env", "severity", "kind", "subject", "value", "limit")},
    "rollbacks": {name: name for name in ("round", "epoch", "env", "reason", "loss", "loss_limit", "seeds_pruned")},
}


class Inspection(NamedTuple):
    """Contents for the terminal: facts by name, then tables by title."""

    facts: dict[str, str]
    tables: dict[str, list[Row]]


def tables(path: Path | str) -> dict[str, list[Row]]:
    """The tables of a run directory by name: lists of rows, a row a mapping from columns to numbers and names."""
    return build_views(read_run(Path(path)).tables)


def inspect_path(path: Path) -> Inspection:
    """Return the contents of a run directory, or of a checkpoint in one."""
    if not os.path.isfile(path / run_directory.CONFIG) and os.path.isfile(path / run_directory.MANIFEST):
        return _inspect_checkpoint(path)
    log = read_run(path)
    facts = {**overview(log), "last checkpoint": str(log.manifest.get("last_checkpoint") or "none")}
    found = build_views(log.tables)
    return Inspection(facts, dict(_table_excerpt(name, found[name]) for name in TABLE_COLUMNS))


def _table_excerpt(name: str, rows: list[Row]) -> tuple[str, list[Row]]:
    """The latest rows of a table, under its title."""
    title = name if len(rows) <= MAX_ROWS else f"{name}, the last {MAX_ROWS} of {len(rows)}"
    return title, [
        {heading: row[column] for heading, column in TABLE_COLUMNS[name].items()} for row in rows[-MAX_ROWS:]
    ]


def _inspect_checkpoint(path: Path) -> Inspection:
    """Position, condition, origin and files of a checkpoint."""
    try:
        manifest = checkpoint_store.read_manifest(path)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {path} {error}") from None
    listed, config = manifest.pop("files"), manifest.pop("config", {})
    facts = {escape_text(name): escape_text(_format_value(value)) for name, value in manifest.items()}
    sizes = [{"file": name, "bytes": file["bytes"], "sha256": file["sha256"]} for name, file in listed.items()]
    usual = dict(flatten_settings(to_settings(RunSpec())))
    made = dict(flatten_settings(config)) if isinstance(config, dict) else {}
    own = [
        {"setting": escape_text(name), "value": escape_text(_format_value(value))}
        for name, value in made.items()
        if usual.get(name) != value
    ]
    state = escape_text(checkpoint_store.find_damage(path) or "every file is as it was saved")
    tables = {"files": sizes, "settings that differ from the defaults": own}
    return Inspection({"checkpoint": path.name, "state": state, **facts}, tables)


def _format_value(value: Any) -> str:
    return ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else str(value)
