"""Events of envs, slots and epochs: a pure function of the record of a round.  numpy, no tensors.

Nothing is derived while a run writes: `mg.events` derives from the files.  A rule derives the
events of one kind; extras add rules at the entry points `morphogen.events`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.config.registry import extra_parts
from morphogen.log.codec import Array
from morphogen.log.events import Envelope, Event, Json, Severity, field_names
from morphogen.log.kinds import epoch as kinds
from morphogen.log.round_record import (
    STAGE_POINTS,
    VALID,
    Columns,
    RoundRecord,
    RunFacts,
    expand_flag,
    in_stages,
    slot_history,
)
from morphogen.log.round_summary import delivered_params
from morphogen.vocab.action import VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import OCCUPIED, Algorithm, Gate, Panic, Stage
from morphogen.vocab.text import name_map

PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing
NO_VALUE: Any = None  # annotations of numpy refuse None as an array
# Columns of fields with other names, and the enums of codes.
COLUMNS = name_map(
    "loss=val_loss, streak=panic_streak, interaction=interaction_sum, "
    "alpha_target=blend_target, passed=gate_passed, accuracy=acc_before"
)
CODES = {
    "stage": Stage,
    "outcome": Outcome,
    "reason": Reason,
    "op_effective": Op,
    "gate": Gate,
    "algorithm": Algorithm,
}
Row = dict[str, Any]  # field -> its values
ALL_ENVS, ONE_ENV, SIGNS, DETAILS = range(4)  # groups of the events of an epoch


@dataclass(frozen=True, slots=True)
class Places:
    """Places of the events of a kind in a round, and the columns there.

    `index`: of epochs, of envs if an event is about one, of slots if an event is about one.
    """

    columns: Columns
    facts: RunFacts
    index: tuple[Array, ...]

    def __getitem__(self, name: str) -> Array:
        column = self.columns[name]
        return column[self.index[: column.ndim]]

    def field(self, name: str) -> Array:
        """Return the values of a field: NaN, or None in place of a flag, where it was not measured;
        codes by name.
        """
        column = COLUMNS.get(name, name)
        values = self[column]
        if column == "blueprint":
            return np.array(self.facts.blueprints, dtype=object)[values]
        if column in CODES:
            return code_names(CODES[column], values)
        if column not in VALID:
            return values
        flag = expand_flag(self[VALID[column]], values)
        return np.where(flag, values, NO_VALUE if values.dtype == bool else np.nan)


def by_code(value: Callable[[int], Any], codes: Array) -> Array:
    """Return the value of every code, an array of objects."""
    return np.asarray(np.vectorize(cache(value), otypes=[object])(codes))


def code_names(kind: Callable[[int], Any], codes: Array) -> Array:
    """Return the name of every code of an enum."""
    return by_code(lambda code: kind(code).name, codes)


def panic_names(codes: Array) -> Array:
    """Return the reasons of a rollback, or signs of one."""
    return by_code(lambda code: Panic(code).name.lower(), codes)


@dataclass(frozen=True, slots=True)
class EventRule:
    """Events of a kind.

    Attributes:
        order: group in its epoch, and step in the group.  Events of a group are sorted by env, then
            by step, then by slot.
        severity: of the events; "": of their kind.
        where: columns -> bool [T], [T, E] or [T, E, S], places of events; None: every epoch.
        fields: values of fields that `Places.field` does not find: one per event in an array or
            list, or one for all events.
    """

    kind: type[Event]
    order: tuple[int, int]
    where: Callable[[Columns], Array] | None = None
    fields: Callable[[Places], Row] = lambda places: {}
    severity: Severity = ""


@cache
def event_rules() -> tuple[EventRule, ...]:
    """Return the rules of the core and of extras.

    Only extras of this distribution add rules, because a broken rule would stop every reader.
    """
    return (*RULES, *(rule for rules in extra_parts("morphogen.events").values() for rule in rules))


def derived_kinds() -> frozenset[str]:
    """Return the names of events that are derived."""
    return frozenset(rule.kind.NAME for rule in event_rules())


def derive_events(record: RoundRecord, wanted: Collection[str] | None = None) -> Iterator[Envelope]:
    """Yield the events of the epochs of a round; `wanted`: names of events; None: all.

    In each epoch events about all envs come first, then the events of each env, in order, then
    signs of seeds, then details.
    """
    rules = [rule for rule in event_rules() if wanted is None or rule.kind.NAME in wanted]
    if not rules:
        return
    columns = round_columns(record)
    found = list[tuple[tuple[int, ...], Envelope]]()
    for rule in rules:
        mask = np.ones(record.epochs) if rule.where is None else rule.where(columns)
        places = Places(columns, record.facts, np.nonzero(mask))
        index = np.stack(places.index, axis=1).tolist()
        if not index:
            continue
        fields = rule.fields(places)
        fields |= {name: places.field(name) for name in field_names(rule.kind).keys() - fields}
        for i, at in enumerate(index):
            row = {
                name: values[i] if isinstance(values, list | np.ndarray) else values
                for name, values in fields.items()
            }
            event = Envelope(rule.kind(**row), **_coordinates(at, record), severity=rule.severity)
            epoch, env, slot = (*at, 0, 0)[:3]
            group, step = rule.order
            found.append(((epoch, group, env, step, slot), event))
    for _, event in sorted(found, key=itemgetter(0)):
        yield event


def _coordinates(at: Sequence[int], record: RoundRecord) -> Json:
    """Return the coordinates of an event about (epoch), (epoch, env) or (epoch, env, slot)."""
    facts = record.facts
    where: Json = {"round": record.round, "epoch": at[0]}
    if len(at) > 1:
        where |= {"env": at[1], "episode": record.round * facts.envs + at[1]}
    if len(at) > 2:
        where["slot"] = facts.slots[at[2]]
    return where


def round_columns(record: RoundRecord) -> dict[str, Array]:
    """Return the columns of a record, and further ones [T, E, ...].

    `before.NAME` and `after.NAME`: state of the slots before an epoch, 0 before the first, and
    after it; `end.NAME`: ends of the episodes, at every epoch; `is_last`: whether an episode ends.
    """
    columns = {**record.columns}
    after = slot_history(columns)
    for name, array in after.items():
        columns[f"after.{name}"] = array
        columns[f"before.{name}"] = np.concatenate((np.zeros_like(array[:1]), array[:-1]))
    # a germination is noted in its own epoch
    columns["before.germination_accuracy"] = after["germination_accuracy"]
    for name, array in record.ends.items():
        columns[f"end.{name}"] = np.broadcast_to(array, (record.epochs, *array.shape))
    is_last = np.arange(record.epochs) == record.facts.epochs - 1
    return columns | {"is_last": np.repeat(is_last[:, None], record.envs, axis=1)}


def _stage_rules(step: int, points: tuple[str, str]) -> tuple[EventRule, ...]:
    """Return rules of the changes of stage between two points of an epoch, each of which is
    followed by the event of its seed.
    """
    old, new = points
    cause, reason = [*kinds.REMOVALS.items()][step]

    def is_move(columns: Columns) -> Array:
        return columns[old] != columns[new]

    def is_move_to(stage: Stage) -> Callable[[Columns], Array]:
        return lambda columns: is_move(columns) & (columns[new] == stage)

    def change(places: Places) -> Row:
        was = places[old]
        start = places["stage_before"]
        return {
            "from_": code_names(Stage, was),
            "to": code_names(Stage, places[new]),
            "cause": cause,
            "blueprint": np.where(was == Stage.DORMANT, NO_VALUE, places.field("blueprint")),
            "alpha": places["before.alpha"],
            "age": np.where(start == Stage.DORMANT, 0, places["before.age"]),
            # 0: a second move
            "epochs_in_stage": np.where(was == start, places["before.epochs_in_stage"], 0),
        }

    def last_state(places: Places) -> Row:
        return {**_last_state(places), "reason": reason}

    order = (ONE_ENV, step + 1)
    return (
        EventRule(kinds.StageChanged, order, is_move, change),
        EventRule(kinds.SeedGerminated, order, is_move_to(Stage.GERMINATED)),
        EventRule(kinds.SeedFossilized, order, is_move_to(Stage.FOSSILIZED), _fossil_state),
        EventRule(kinds.SeedPruned, order, is_move_to(Stage.PRUNED), last_state),
    )


def _fossil_state(places: Places) -> Row:
    return {**_last_state(places), "shapley": _last_measured(places, "shapley")}


def _last_state(places: Places) -> Row:
    """Return seeds as of the last epoch before their move."""
    gain = places["acc_before"].astype(np.float64) - places["before.germination_accuracy"]
    return {
        # counted in the epoch before, or first in this one
        "params": np.maximum(places["before.params"], places["params"]),
        "age": np.where(places["stage_before"] != Stage.DORMANT, places["before.age"], 0),
        "contribution": _last_measured(places, "contribution"),
        "accuracy_change": gain,
    }


def _last_measured(places: Places, name: str) -> Array:
    return np.where(places["before.contribution_valid"], places[f"before.{name}"], np.nan)


def _epoch_fields(places: Places) -> Row:
    occupied = in_stages(places["stage"], OCCUPIED)
    ratio = delivered_params(places.columns) / places.columns["host_params"]
    return {
        "params_ratio": ratio[places.index],
        "contribution": np.where(occupied, places.field("contribution"), np.nan),
    }


def _rollback_fields(places: Places) -> Row:
    names = places.facts.components
    amounts = places["components"]
    penalty = -amounts[:, names.index(PENALTY)] if PENALTY in names else 0.0
    return {"reason": panic_names(places["panic"]), "penalty": penalty}


def _episode_fields(places: Places) -> Row:
    facts = places.facts
    named: dict[str, Sequence[str]] = {
        "components": facts.components,
        "detectors": DETECTORS,
        "instance": INSTANCE_PARAMETERS,
        "ops": VALUE_NAMES[Head.OP],
    }
    names = field_names(kinds.EpisodeCompleted)
    row: Row = {name: places[f"end.{name}"] for name in names if name != "topology"}
    for name, parts in named.items():
        row[name] = [dict(zip(parts, values, strict=True)) for values in row[name]]
    return row | {"topology": seeds_of_envs(places, OCCUPIED, ("contribution",))}


def seeds_of_envs(
    places: Places, stages: tuple[Stage, ...], more: tuple[str, ...]
) -> list[list[Json]]:
    """Return the seeds of every env in a range of stages, with `more` columns."""
    valid = places["after.contribution_valid"]
    columns = {name: places.field(name) for name in ("blueprint", "stage", "alpha", *more)}
    if "contribution" in more:
        columns["contribution"] = np.where(valid, places["after.contribution"], np.nan)
    slots = places.facts.slots
    return [
        [
            {"slot": slots[slot], **{name: column[env, slot] for name, column in columns.items()}}
            for slot in np.flatnonzero(kept).tolist()
        ]
        for env, kept in enumerate(in_stages(places["stage"], stages))
    ]


def _ends(columns: Columns) -> Array:
    return np.asarray(columns["is_last"].any(axis=1))


def _goes_on(columns: Columns) -> Array:
    return ~_ends(columns)


RULES = (
    EventRule(kinds.EpochCompleted, (ALL_ENVS, 0), fields=_epoch_fields),
    EventRule(kinds.AblationsMeasured, (ALL_ENVS, 1), _ends),
    EventRule(kinds.AblationsMeasured, (DETAILS, 5), _goes_on),
    *(
        rule
        for step, points in enumerate(pairwise(STAGE_POINTS))
        for rule in _stage_rules(step, points)
    ),
    EventRule(kinds.RolledBack, (ONE_ENV, 4), itemgetter("rolled_back"), _rollback_fields),
    EventRule(kinds.EpisodeCompleted, (ONE_ENV, 8), itemgetter("is_last"), _episode_fields),
)
