"""What a run directory or a checkpoint holds, as tables for the terminal.  No torch, nothing is written."""

import os
from pathlib import Path
from typing import NamedTuple

from morphogen.errors import DataError
from morphogen.run import directory
from morphogen.run.log import load
from morphogen.run.overview import overview
from morphogen.run.reading import parsed, reason, whole
from morphogen.run.telemetry.analytics import Row
from morphogen.run.telemetry.views import views
from morphogen.vocab.text import escaped

LATEST = 10  # rows of long tables
# Tables that are shown: heading -> its column.
SHOWN: dict[str, dict[str, str]] = {
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


class Told(NamedTuple):
    """What there is to say: facts by name, then tables by title."""

    facts: dict[str, str]
    tables: dict[str, list[Row]]


def tables(path: Path | str) -> dict[str, list[Row]]:
    """The tables of a run directory by name: lists of rows, a row a mapping from columns to numbers and names."""
    return views(load(Path(path)).tables)


def told(path: Path) -> Told:
    """What a run directory holds, or a checkpoint in one."""
    if not os.path.isfile(path / directory.CONFIG) and os.path.isfile(path / directory.MANIFEST):
        return _checkpoint(path)
    log = load(path)
    facts = {**overview(log), "last checkpoint": str(log.manifest.get("last_checkpoint") or "none")}
    found = views(log.tables)
    return Told(facts, dict(_shown(name, found[name]) for name in SHOWN))


def _shown(name: str, rows: list[Row]) -> tuple[str, list[Row]]:
    """The latest rows of a table, under its title."""
    title = name if len(rows) <= LATEST else f"{name}, the last {LATEST} of {len(rows)}"
    return title, [{heading: row[column] for heading, column in SHOWN[name].items()} for row in rows[-LATEST:]]


def _checkpoint(path: Path) -> Told:
    """Where a checkpoint stands and which files it consists of."""
    try:
        manifest = parsed(whole(path / directory.MANIFEST))
        listed = manifest.pop("files")
        sizes = [{"file": name, "bytes": facts["bytes"], "sha256": facts["sha256"]} for name, facts in listed.items()]
    except OSError as error:
        raise DataError(f"{path / directory.MANIFEST} cannot be read: {reason(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / directory.MANIFEST} is damaged: {reason(error)}") from None
    facts = {escaped(name): escaped(str(value)) for name, value in manifest.items()}
    return Told({"checkpoint": path.name, **facts}, {"files": sizes})
