"""Contents of a run directory or of a checkpoint: facts and tables.  No torch; writes nothing."""

import os
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from morphogen.config.config_files import flatten_settings
from morphogen.config.fields import to_settings
from morphogen.config.registry import extra_parts
from morphogen.config.spec import RunSpec
from morphogen.config.telemetry_spec import LEVEL_OFF
from morphogen.extras.inspection.run_reader import Row, RunLog, read_run
from morphogen.extras.inspection.views import build_views
from morphogen.log import run_directory
from morphogen.log.console import format_cell, format_duration, format_number
from morphogen.train import checkpoint_store
from morphogen.vocab.paths import expand_path
from morphogen.vocab.text import name_map

MAX_ROWS = 10  # rows of long tables

# Tables that are shown: heading -> its column.
TABLE_COLUMNS: dict[str, dict[str, str]] = {
    "held_out": name_map(
        "rounds of learning=round, value=value_mean, minus wait=minus_wait_mean, minus "
        "heuristic=minus_heuristic_mean"
    ),
    "rounds": name_map(
        "round, {score} %=accuracy_mean, committed %=committed_mean, "
        "value=network_value_mean, reward=reward_mean, "
        "x host=params_ratio_mean, success=success_share, hypervolume, rollbacks"
    ),
    "blueprints": name_map(
        "blueprint, germinated, fossilized, pruned=pruned.action, by ramp=pruned.ramp, "
        "rolled back=rolled_back, alive, "
        "contribution=contribution_mean, shapley=shapley_mean, params"
    ),
    "ops": name_map(
        "op, sampled, took effect=effective, executed=succeeded, success=success_share, "
        "legal=legal_share"
    ),
    "masks": name_map("head, legal values=choices_mean, share with one=single_share"),
    "verdicts": name_map("what, name, steps"),
    "front": name_map(
        "round, env, committed %=committed_accuracy, params, x host=params_ratio, "
        "stability, value=network_value"
    ),
    "throughput": name_map(
        "round, env-epochs/s=env_epochs_per_s, samples/s=samples_per_s, rollout "
        "s=rollout_s, update s=update_s, "
        "host waits=host_wait_time_share"
    ),
    "anomalies": name_map("round, epoch, env, severity, kind, subject, value, limit"),
    "rollbacks": name_map("round, epoch, env, reason, loss, loss_limit, seeds_pruned"),
}
UNKNOWN = "not known"
# settings of the run, or of its data
SIZES = ("seed", "rounds", "envs", "episode_length", "minibatches", "batch")


class Inspection(NamedTuple):
    """Contents for the terminal: facts by name, then tables by title."""

    facts: dict[str, str]
    tables: dict[str, list[Row]]


def tables(path: Path | str) -> dict[str, list[Row]]:
    """Return the tables of a run directory by name: lists of rows, a row a mapping from columns to
    values.

    Args:
        path: run directory; the run may still be running.

    Returns: tables such as `rounds`, `ops`, `blueprints` and `anomalies`.
    Raises: ConfigError for a folder that is no run directory.

    Example:
        >>> import tempfile
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 2,
        ...     "envs": 4,
        ...     "policy_name": "wait",
        ...     "episode_length": 2,
        ... }
        >>> spec = mg.RunSpec(**fields, final_episodes=0, telemetry={"level": "normal"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mg.train_ppo_vectorized(spec, out=folder)
        ...     rows = mg.tables(folder)["rounds"]
        >>> [(row["round"], row["accuracy_mean"], row["params_ratio_mean"]) for row in rows]
        [(1, 10.0, 1.0), (2, 7.5, 1.0)]
    """
    return build_views(read_run(expand_path(path)).tables)


def inspect_path(path: Path, *, most: int | None = MAX_ROWS) -> Inspection:
    """Return the contents of a run directory, or of a checkpoint in one.

    most: rows of a table, its last ones; None: all.
    """
    if not os.path.isfile(path / run_directory.CONFIG) and os.path.isfile(
        path / run_directory.MANIFEST
    ):
        return _inspect_checkpoint(path)
    log = read_run(path)
    facts = {**overview(log), "last checkpoint": str(log.manifest.get("last_checkpoint") or "none")}
    views = build_views(log.tables)
    excerpts = dict[str, list[Row]]()
    for name, columns in TABLE_COLUMNS.items():
        rows = views[name]
        count = len(views[name])
        title = name if most is None or count <= most else f"{name}, the last {most} of {count}"
        shown = rows if most is None else rows[-most:]
        excerpts[title] = [
            {heading.format(score=log.score): row.get(key) for heading, key in columns.items()}
            for row in shown
        ]
    for title, rows in extra_parts("morphogen.inspections").items():
        excerpts[title] = rows(path)
    return Inspection(facts, excerpts)


def _inspect_checkpoint(path: Path) -> Inspection:
    run_directory.refuse_links(path)
    manifest = checkpoint_store.read_manifest(path)
    usual = dict(flatten_settings(to_settings(RunSpec())))
    changed = [
        {"setting": name, "value": str(value)}
        for name, value in flatten_settings(manifest.pop("config", {}))
        if usual.get(name) != value
    ]
    facts = {
        "checkpoint": path.resolve().name,
        "state": checkpoint_store.find_damage(path) or "every file is as it was saved",
        **{name: str(value) for name, value in flatten_settings(manifest)},
    }
    return Inspection(facts, {"settings that differ from the defaults": changed})


def overview(log: RunLog) -> dict[str, str]:
    """Facts by name, as texts."""
    config = log.config
    telemetry = config["telemetry"]
    silent = telemetry["level"] == LEVEL_OFF
    rounds = log.tables["rounds"]
    done = "" if silent else f", {len(rounds)} rounds done"
    none: Row = {}
    start = next(iter(log.tables["starts"]), none)
    best = max(rounds, key=itemgetter("committed_mean"), default=none)
    times = [row["run_s"] for row in log.tables["ends"] if row["run_s"] is not None]
    sizes: Row = {**config["data"], **config}
    versions = log.manifest.get("versions", {})
    facts = {
        "run": log.name,
        "status": log.manifest.get("status", UNKNOWN) + done,
        "task": config["task"],
        "policy": config["policy_name"],
        "reward rule": config["reward"]["rule"],
        "instances": ", ".join(
            f"{name} {span[0]:g} to {span[1]:g}"
            for name, span in config["instance"].items()
            if span is not None
        ),
        **{name: sizes[name] for name in SIZES},
        "slots": ", ".join(config["slots"]),
        "host parameters": start.get("host_params"),
        "policy parameters": start.get("policy_params"),
        "versions": ", ".join(map(" ".join, versions.items())),
        "best round": best.get("round"),
        f"held-out {log.score}": _held_out_accuracy(log.tables["evaluations"]),
        "wall time": format_duration(sum(times)) if times else None,
    }
    if silent:
        facts["events"] = "none, because telemetry.level is off: no table or picture of the rounds"
    elif run_directory.is_outside(log.path, telemetry["dir"]):
        folder = run_directory.events_folder(log.path, telemetry["dir"])
        facts["events"] = f"read from {folder}, outside of the run directory"
    return {
        name: UNKNOWN if value in (None, "") else format_cell(value)
        for name, value in facts.items()
    }


def _held_out_accuracy(evaluations: list[Row]) -> str:
    if not evaluations:
        return "not evaluated"
    last = evaluations[-1]
    ends = {name: format_number(value, 1) for name, value in last["committed_accuracy"].items()}
    return (
        f"{ends['mean']} % (95 % interval {ends['low']} to {ends['high']}) on {last['episodes']} "
        f"instances of the {last['split']} split"
    )
