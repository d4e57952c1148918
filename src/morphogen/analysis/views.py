"""Plain tables out of folded ones: lists of rows, a row a mapping from columns to numbers and names."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from morphogen.analysis.front import Point, front, hypervolume
from morphogen.analysis.tables import Row, Tables, mean
from morphogen.config.task import TASKS
from morphogen.telemetry.scores import scoreboard
from morphogen.vocab.action import Op
from morphogen.vocab.slot import CnnSpec

ROUND = (
    *("round", "episodes_completed", "accuracy_mean", "accuracy_std", "committed_mean", "rolling_accuracy"),
    *("reward_mean", "return_mean", "network_value_mean", "params_ratio_mean", "stability_mean", "success_share"),
    *("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks"),
)
EPISODE = (
    *("round", "env", "episode", "accuracy", "committed_accuracy", "initial_accuracy", "best_accuracy", "loss"),
    *("success", "stability", "reward", "discounted_return", "network_value", "params", "params_ratio"),
    *("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks", "instance"),
)

ROLLBACK = (
    "round",
    "epoch",
    "env",
    "reason",
    "loss",
    "loss_limit",
    "streak",
    "penalty",
    "seeds_pruned",
    "snapshot_epoch",
)
ANOMALY = ("round", "epoch", "env", "slot", "severity", "kind", "subject", "value", "limit", "streak")


def flat(row: Row, *names: str) -> Row:
    """A row with `name.part` in place of mappings; of the named columns only, if any are named."""
    found: Row = {}
    for name in names or row:
        value = row.get(name)
        if isinstance(value, Mapping):
            found |= flat({f"{name}.{part}": inner for part, inner in value.items()})
        else:
            found[name] = value
    return found


def of_round(rows: Iterable[Row], round: int) -> list[Row]:
    """The rows of a round."""
    return [row for row in rows if row["round"] == round]


def host_of(tables: Tables) -> CnnSpec | None:
    """The host of a run; None where the log does not say."""
    for start in tables["starts"]:
        width = start["config"].get("host", {}).get("width")
        if start["task"] in TASKS and width is not None:
            return replace(TASKS[start["task"]].host, base=width)
    return None


CHOSEN = ("sampled", "succeeded")


def totals(rows: Iterable[Row], name: str) -> Counter[str]:
    """The sum of a column of counts by name."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row[name])
    return found


def rounds(tables: Tables) -> list[Row]:
    """Rounds in numbers, and how much of the plane of accuracy and parameters their episodes cover."""
    return [
        {**flat(row, *ROUND), "hypervolume": hypervolume(points(of_round(tables["episodes"], row["round"])))}
        for row in tables["rounds"]
    ]


def blueprints(tables: Tables) -> list[Row]:
    """The scoreboard: what became of the seeds of each blueprint."""
    scores = scoreboard(tables.blueprints, host_of(tables))
    return [{"blueprint": name, **flat({**score})} for name, score in scores.items()]


def ops(tables: Tables) -> list[Row]:
    """How often each op was chosen, took effect and was executed, and in which share of the steps it was legal."""
    done = totals(tables["episodes"], "ops")
    return [{"op": op.name, "effective": done[op.name], **_choices(tables, op.name)} for op in Op]


def _choices(tables: Tables, op: str) -> Row:
    """What only levels above minimal tell."""
    rows = tables["actions"]
    sampled, succeeded = (sum(row[name].get(op, 0) for row in rows) if rows else None for name in CHOSEN)
    share = None if not sampled or succeeded is None else succeeded / sampled
    legal = mean(row["legal_share"].get(op) for row in tables["masks"])
    return {"sampled": sampled, "succeeded": succeeded, "success_share": share, "legal_share": legal}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def ops_by_epoch(tables: Tables) -> list[Row]:
    """What took effect in which epoch of an episode."""
    epochs = sorted({row["epoch"] for row in tables["epochs"]})
    found = []
    for epoch in epochs:
        rows = [row for row in tables["epochs"] if row["epoch"] == epoch]
        done, succeeded = totals(rows, "ops"), totals(rows, "succeeded")
        found += [
            {
                "epoch": epoch,
                "op": op.name,
                "effective": done[op.name],
                "succeeded": succeeded[op.name],
                "share": _share(done[op.name], done.total()),
            }
            for op in Op
        ]
    return found


def verdicts(tables: Tables) -> list[Row]:
    """Outcomes of actions, and why those that were not executed were not."""
    return [
        {"what": what.rstrip("s"), "name": name, "steps": count}
        for what in ("outcomes", "reasons")
        for name, count in totals(tables["actions"], what).most_common()
        if count
    ]


def masks(tables: Tables) -> list[Row]:
    """How much choice each head had, means over the rounds."""
    heads = {head: None for row in tables["masks"] for head in row["choices_mean"]}
    return [
        {"head": head, **{name: mean(row[name].get(head) for row in tables["masks"]) for name in CHOICE}}
        for head in heads
    ]


CHOICE = ("choices_mean", "single_share")


def episodes(tables: Tables) -> list[Row]:
    """How every episode ended."""
    return [flat(row, *EPISODE) for row in tables["episodes"]]


def points(rows: Sequence[Row]) -> list[Point]:
    """What episodes delivered, of those where it was measured."""
    return [
        Point(row["committed_accuracy"], row["params_ratio"], row["stability"])
        for row in rows
        if None not in (row["committed_accuracy"], row["params_ratio"], row["stability"])
    ]


def best(tables: Tables) -> list[Row]:
    """The episodes that no other one dominates in accuracy, parameters and stability."""
    known = [row for row in tables["episodes"] if points([row])]
    return [flat(known[i], *EPISODE) for i in front(points(known))]


def plain(table: str, *names: str) -> Callable[[Tables], list[Row]]:
    """The rows of a folded table as they are; of the named columns only, if any are named."""
    return lambda tables: [flat(row, *names) for row in tables[table]]


VIEWS: dict[str, Callable[[Tables], list[Row]]] = {
    "rounds": rounds,
    "blueprints": blueprints,
    "ops": ops,
    "ops_by_epoch": ops_by_epoch,
    "verdicts": verdicts,
    "masks": masks,
    "episodes": episodes,
    "front": best,
    "rollbacks": plain("rollbacks", *ROLLBACK),
    "anomalies": plain("anomalies", *ANOMALY),
    **{table: plain(table) for table in ("updates", "rewards", "throughput", "phases")},
}


def views(tables: Tables) -> dict[str, list[Row]]:
    """Every table by name."""
    return {name: view(tables) for name, view in VIEWS.items()}
