"""A run in a few lines: what it is, how far it came, how good it was."""

from typing import Any

from morphogen.analysis.console import format_duration, format_number
from morphogen.analysis.run_log import RunLog
from morphogen.analysis.tables import Row
from morphogen.storage import run_directory

UNKNOWN = "not known"


def overview(log: RunLog) -> dict[str, str]:
    """Facts by name, as texts."""
    config, start = log.config, next(iter(log.tables["starts"]), {})
    sizes = {**config.get("data", {}), **config, **{"host parameters": start.get("host_params")}}
    return {
        "run": log.name,
        "task": _text(config.get("task")),
        "policy": f"{_text(config.get('policy_name'))}, paid by {_text(config.get('reward', {}).get('rule'))}",
        "instances": _instance_ranges(config),
        "seed": _text(config.get("seed")),
        "size": f"{_text(sizes.get('rounds'))} rounds of {_text(sizes.get('envs'))} envs, "
        f"{_text(sizes.get('episode_length'))} epochs of {_text(sizes.get('minibatches'))} minibatches of "
        f"{_text(sizes.get('batch'))} samples",
        "slots": ", ".join(config.get("slots") or start.get("slots", ())) or UNKNOWN,
        "parameters": f"host {_text(start.get('host_params'))}, policy {_text(start.get('policy_params'))}",
        "versions": ", ".join(f"{name} {one}" for name, one in log.manifest.get("versions", {}).items()) or UNKNOWN,
        "status": f"{_text(log.manifest.get('status'))}, {len(log.tables['rounds'])} rounds done",
        "best round": _best_round(log.tables["rounds"]),
        "held-out accuracy": _held_out_accuracy(log.tables["evaluations"]),
        "wall time": _wall_time(log.tables["ends"]),
        **_event_folder(log),
    }


def _event_folder(log: RunLog) -> dict[str, str]:
    """Place of the events, if the config names one outside of the run directory."""
    folder = run_directory.events_folder(log.path, log.config["telemetry"]["dir"])
    inside = folder.resolve().is_relative_to(log.path.resolve())
    return {} if inside else {"events": f"read from {folder}, outside of the run directory"}


def _text(value: Any) -> str:
    return UNKNOWN if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _instance_ranges(config: Row) -> str:
    ranges = {name: span for name, span in config.get("instance", {}).items() if span is not None}
    texts = [
        f"{name} {low:g}" if low == high else f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items()
    ]
    return ", ".join(texts) or UNKNOWN


def _best_round(rounds: tuple[Row, ...]) -> str:
    best = max(rounds, key=lambda row: row["committed_mean"] or 0.0, default=None)
    if best is None:
        return UNKNOWN
    return f"round {best['round']} with a mean committed accuracy of {format_number(best['committed_mean'], 1)} %"


def _held_out_accuracy(evaluations: tuple[Row, ...]) -> str:
    if not evaluations:
        return "not evaluated"
    last = evaluations[-1]
    mean, low, high = (format_number(last["committed_accuracy"][name], 1) for name in ("mean", "low", "high"))
    return f"{mean} % (95 % interval {low} to {high}) on {last['episodes']} instances of the {last['split']} split"


def _wall_time(ends: tuple[Row, ...]) -> str:
    return format_duration(sum(row["run_s"] for row in ends)) if ends else UNKNOWN
