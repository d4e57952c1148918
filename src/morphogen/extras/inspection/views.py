"""Plain tables out of folded ones: lists of rows, a row a mapping from columns to numbers and
names.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from morphogen.extras.inspection.run_reader import Row, Tables
from morphogen.log.events import mean_known
from morphogen.vocab.action import Op
from morphogen.vocab.text import name_map

ROUND_COLUMNS = name_map(
    "round, episodes_completed, accuracy_mean, accuracy_std, committed_mean, rolling_accuracy, "
    "reward_mean, return_mean, network_value_mean, params_ratio_mean, stability_mean, "
    "success_share, germinated, fossilized, contributing, pruned, live, rollbacks"
)
EPISODE_COLUMNS = name_map(
    "round, env, episode, accuracy, committed_accuracy, initial_accuracy, best_accuracy, loss, "
    "success, stability, reward, discounted_return, network_value, params, params_ratio, "
    "germinated, fossilized, contributing, pruned, live, rollbacks, instance"
)
ROLLBACK_COLUMNS = name_map(
    "round, epoch, env, reason, loss, loss_limit, streak, penalty, seeds_pruned, snapshot_epoch"
)
ANOMALY_COLUMNS = name_map("round, epoch, env, slot, severity, kind, subject, value, limit, streak")
MASK_COLUMNS = ("choices_mean", "single_share")


def flatten_row(row: Row, *names: str) -> Row:
    """A row with `name.part` in place of mappings; of the named columns only, if any are named."""
    flat: Row = {}
    for name in names or row:
        value = row.get(name)
        if isinstance(value, Mapping):
            flat |= flatten_row({f"{name}.{part}": inner for part, inner in value.items()})
        else:
            flat[name] = value
    return flat


def rows_of_round(rows: Iterable[Row], round: int) -> list[Row]:
    """The rows of a round."""
    return [row for row in rows if row["round"] == round]


def sum_counts(rows: Iterable[Row], name: str) -> Counter[str]:
    """The sum of a column of counts by name."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row[name])
    return total


def round_table(tables: Tables) -> list[Row]:
    """Rounds in numbers, and how much of the plane of accuracy and parameters their episodes
    cover.
    """
    table = []
    for row in tables["rounds"]:
        points = pareto_points(rows_of_round(tables["episodes"], row["round"]))
        table.append(flatten_row(row, *ROUND_COLUMNS) | {"hypervolume": hypervolume(points)})
    return table


def blueprint_table(tables: Tables) -> list[Row]:
    """Outcomes of the seeds of each blueprint, up to the last round."""
    scores = tables["scores"][-1]["scores"] if tables["scores"] else {}
    return [{"blueprint": name, **flatten_row({**score})} for name, score in scores.items()]


def op_table(tables: Tables) -> list[Row]:
    """Counts of each op: in effect, chosen, executed; and the share of steps in which the op was
    legal.
    """
    actions = tables["actions"]
    names = ("sampled", "succeeded")
    done = sum_counts(tables["episodes"], "ops")
    counts = {name: sum_counts(actions, name) for name in names}
    table = []
    for op in (op.name for op in Op):
        row: Row = {name: counts[name][op] if actions else None for name in names}
        share = row["succeeded"] / row["sampled"] if row["sampled"] else None
        legal = mean_known(mask["legal_share"].get(op) for mask in tables["masks"])
        table.append(
            {"op": op, "effective": done[op], **row, "success_share": share, "legal_share": legal}
        )
    return table


def verdict_table(tables: Tables) -> list[Row]:
    """Outcomes of actions, and why those that were not executed were not."""
    return [
        {"what": what.rstrip("s"), "name": name, "steps": count}
        for what in ("outcomes", "reasons")
        for name, count in sum_counts(tables["actions"], what).most_common()
        if count
    ]


def mask_table(tables: Tables) -> list[Row]:
    """Legal choices of each head, means over the rounds."""
    masks = tables["masks"]
    heads = dict.fromkeys(head for row in masks for head in row["choices_mean"])
    return [
        {"head": head}
        | {name: mean_known(row[name].get(head) for row in masks) for name in MASK_COLUMNS}
        for head in heads
    ]


class Point(NamedTuple):
    """Result of an episode: its accuracy and its size."""

    accuracy: float  # committed, percent
    params_ratio: float  # of the delivered network, over the host's
    stability: float  # (0, 1]


def pareto_front(points: Sequence[Point]) -> tuple[int, ...]:
    """Indices of the points that no other is ahead of, ascending; equal points stay together."""
    gains = [(point.accuracy, -point.params_ratio, point.stability) for point in points]
    front: list[int] = []
    # a point that dominates another precedes it
    for i in sorted(range(len(points)), key=gains.__getitem__, reverse=True):
        ahead = (gains[j] for j in front if all(map(operator.ge, gains[j], gains[i])))
        if all(better == gains[i] for better in ahead):
            front.append(i)
    return tuple(sorted(front))


def hypervolume(
    points: Sequence[Point], *, accuracy: float = 0.0, params_ratio: float = 2.0
) -> float:
    """Area of (accuracy, params_ratio) that is no better than some point and better than the
    reference, the worst accuracy and ratio that still count.
    """
    area = 0.0
    width = params_ratio
    for point in sorted(points, key=lambda point: (-point.accuracy, point.params_ratio)):
        if point.params_ratio < width and point.accuracy > accuracy:
            area += (point.accuracy - accuracy) * (width - point.params_ratio)
            width = point.params_ratio
    return area


def pareto_points(rows: Sequence[Row]) -> list[Point]:
    """Delivered networks of episodes."""
    return [Point(row["committed_accuracy"], row["params_ratio"], row["stability"]) for row in rows]


def front_episodes(tables: Tables) -> list[Row]:
    """The episodes that no other one dominates in accuracy, parameters and stability."""
    rows = tables["episodes"]
    return [flatten_row(rows[i], *EPISODE_COLUMNS) for i in pareto_front(pareto_points(rows))]


def column_table(table: str, *names: str) -> Callable[[Tables], list[Row]]:
    """The rows of a folded table as they are; of the named columns only, if any are named."""
    return lambda tables: [flatten_row(row, *names) for row in tables[table]]


def mean_with_error(name: str, values: Sequence[float | None]) -> Row:
    """Mean, and one standard error of it to either side."""
    names = [f"{name}_{part}" for part in ("mean", "low", "high")]
    known = [value for value in values if value is not None]
    if not known:
        return dict.fromkeys(names)
    middle = fmean(known)
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return dict(zip(names, (middle, middle - error, middle + error), strict=True))


def held_out_table(tables: Tables) -> list[Row]:
    """A row per play of the learning curve by the learned policy, with its rivals on the same
    instances.
    """
    plays = tables["plays"]
    own = tables["starts"][0]["config"].get("policy_name") if tables["starts"] else None
    rivals = {play["policy"]: play["network_value"] for play in plays if play["policy"] != own}
    rows = []
    for play in plays:
        if play["policy"] != own:
            continue
        values = play["network_value"]
        row = {"round": play["rounds"], "instances": len(values)}
        row |= mean_with_error("value", values)
        for name, theirs in rivals.items():
            pairs = zip(values, theirs, strict=True)
            gains = [a - b for a, b in pairs if a is not None and b is not None]
            row |= {name: mean_known(theirs), **mean_with_error(f"minus_{name}", gains)}
        rows.append(row)
    return rows


VIEWS: dict[str, Callable[[Tables], list[Row]]] = {
    "held_out": held_out_table,
    "rounds": round_table,
    "blueprints": blueprint_table,
    "ops": op_table,
    "verdicts": verdict_table,
    "masks": mask_table,
    "episodes": column_table("episodes", *EPISODE_COLUMNS),
    "front": front_episodes,
    "rollbacks": column_table("rollbacks", *ROLLBACK_COLUMNS),
    "anomalies": column_table("anomalies", *ANOMALY_COLUMNS),
    **{table: column_table(table) for table in ("updates", "rewards", "throughput", "phases")},
}


def build_views(tables: Tables) -> dict[str, list[Row]]:
    """Every table by name."""
    return {name: view(tables) for name, view in VIEWS.items()}
