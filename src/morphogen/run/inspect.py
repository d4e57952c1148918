"""What a run directory or a checkpoint holds, as tables for the terminal.  No torch, nothing is written."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from morphogen.errors import ConfigError, DataError
from morphogen.run import directory
from morphogen.run.log import load
from morphogen.run.overview import overview
from morphogen.run.telemetry.analytics import Row
from morphogen.run.telemetry.views import views

LATEST = 10  # rows of long tables
# Tables that are shown, and their columns; of those with a row per round the latest rows.
SHOWN: dict[str, tuple[str, ...]] = {
    "rounds": (
        *("round", "accuracy_mean", "committed_mean", "network_value_mean", "reward_mean", "params_ratio_mean"),
        *("success_share", "hypervolume", "rollbacks"),
    ),
    "blueprints": (
        *("blueprint", "germinated", "fossilized", "pruned.action", "pruned.ramp", "rolled_back", "alive"),
        *("contribution_mean", "shapley_mean", "params", "churn"),
    ),
    "ops": ("op", "sampled", "effective", "succeeded", "success_share", "legal_share"),
    "masks": ("head", "choices_mean", "single_share"),
    "verdicts": ("what", "name", "steps"),
    "front": ("round", "env", "committed_accuracy", "params", "params_ratio", "stability", "network_value"),
    "throughput": ("round", "env_epochs_per_s", "samples_per_s", "rollout_s", "update_s", "host_wait_time_share"),
    "anomalies": ("round", "epoch", "env", "slot", "severity", "kind", "subject", "value", "limit"),
    "rollbacks": ("round", "epoch", "env", "reason", "loss", "loss_limit", "penalty", "seeds_pruned"),
}
Titled = tuple[str, Sequence[Row]]


def tables(path: Path | str) -> dict[str, list[Row]]:
    """The tables of a run directory by name: lists of rows, a row a mapping from columns to numbers and names."""
    return views(load(Path(path)).tables)


def told(path: Path) -> Iterator[Titled]:
    """Tables with their titles, for a run directory or a checkpoint in one."""
    if not (path / directory.CONFIG).is_file() and (path / directory.MANIFEST).is_file():
        yield from _checkpoint(path)
        return
    log = load(path)
    facts = {**overview(log), "last checkpoint": str(log.manifest.get("last_checkpoint") or "none")}
    yield log.name, [{"fact": name, "value": text} for name, text in facts.items()]
    found = views(log.tables)
    for name, columns in SHOWN.items():
        rows = [{column: row.get(column) for column in columns} for row in found[name]]
        title = name if len(rows) <= LATEST else f"{name}, the last {LATEST} of {len(rows)}"
        yield title.replace("_", " "), rows[-LATEST:]


def _checkpoint(path: Path) -> Iterator[Titled]:
    """Where a checkpoint stands and which files it consists of."""
    try:
        manifest = json.loads((path / directory.MANIFEST).read_bytes())
        listed = manifest.pop("files")
        sizes = [{"file": name, "bytes": facts["bytes"], "sha256": facts["sha256"]} for name, facts in listed.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / directory.MANIFEST} is damaged: {error!r}") from None
    if "epoch" not in manifest:
        raise ConfigError(f"{path} is neither a run directory nor a checkpoint; want one of them")
    yield f"checkpoint {path.name}", [{"fact": name, "value": str(value)} for name, value in manifest.items()]
    yield "files", sizes
