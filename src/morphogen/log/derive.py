"""Events of envs, slots and epochs: a pure function of the record of a round.  numpy, no tensors.

Nothing is derived while a run writes: `mg.events` derives from the files.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.data.image_view import View
from morphogen.log.alarms import SeedFinding, detect_seeds
from morphogen.log.codec import Array
from morphogen.log.events import Envelope, EpochEvent, Event, Json, field_names, tidy
from morphogen.log.jsonl import manifest_hash
from morphogen.log.kinds import epoch as kinds
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.round_record import (
    DEBUG,
    MINIMAL,
    NORMAL,
    STAGE_POINTS,
    VALID,
    Record,
    RoundRecord,
    RunFacts,
    expand_flag,
    history_before,
    in_stages,
    slot_history,
)
from morphogen.log.round_summary import delivered_params, legal_choices, used_heads
from morphogen.vocab.action import VALUE_NAMES, Head, Op, Outcome, Reason
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import BLENDED, OCCUPIED, Algorithm, Check, Fault, Gate, Panic, Stage
from morphogen.vocab.text import name_map

PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing
NO_VALUE: Any = None  # annotations of numpy refuse None as an array
Place = tuple[int, ...]  # row of the env in the record, and the slot if the event is about one


@dataclass(frozen=True, slots=True)
class DeriveContext:
    """Record of one epoch, and its context."""

    record: (
        # and `settled`, hosts whose loss settled first; `began`, envs in a new regime; `totals`,
        # sums so far
        Record
    )
    before: Record  # state of the slots [E, S] before the epoch, its germinations noted
    after: Record
    detections: list[SeedFinding]  # of this epoch
    ends: Record  # of the episodes, at the last epoch; empty before
    round: int
    epoch: int
    facts: RunFacts

    def envelope(self, at: Place, data: Event, severity: str = "") -> Envelope:
        """An event of an env or a slot; of all envs at ()."""
        where: Json = {"round": self.round, "epoch": self.epoch}
        if at:
            number = self.facts.first + at[0]
            where |= {"env": number, "episode": self.round * self.facts.envs + number}
        slot = self.facts.slots[at[1]] if len(at) > 1 else None
        return Envelope(data, **where, slot=slot, severity=severity)

    def blueprint(self, at: Place) -> str:
        """Name of the blueprint in a slot."""
        return self.facts.blueprints[int(self.record["blueprint"][at])]


class EventRule(NamedTuple):
    """Events that are made alike."""

    group: int  # of an epoch: its events are sorted by env
    detail: int  # that the epoch of a record of before needs
    names: frozenset[str]
    make: Callable[[DeriveContext], Iterator[Envelope]]


def derive_events(record: RoundRecord, wanted: Collection[str] | None = None) -> Iterator[Envelope]:
    """Yield the events of the epochs of a round; `wanted`: names of events; None: all.

    In each epoch events about all envs come first, then the events of each env, in order, then
    alarms, then details.
    """
    rules = [rule for rule in RULES if wanted is None or not rule.names.isdisjoint(wanted)]
    if not rules:
        return
    columns = {**record.columns}
    detections = detect_seeds(record.columns)
    stable = record.columns["stabilized"]
    columns["settled"] = stable & (np.cumsum(stable, axis=0) == 1)
    columns["began"] = np.diff(columns["regime"], axis=0, prepend=0) > 0
    columns["totals"] = np.cumsum(columns["components"], axis=0, dtype=np.float64)
    after = slot_history(columns)
    tables = columns, history_before(after), after
    for epoch in range(record.epochs):
        detail = DEBUG if record.detail is None else int(record.detail[epoch])
        row, past, present = (
            {name: column[epoch] for name, column in table.items()} for table in tables
        )
        step = DeriveContext(
            row,
            past,
            present,
            [detection for detection in detections if detection.epoch == epoch],
            record.ends if epoch == record.facts.epochs - 1 else {},
            record.round,
            epoch,
            record.facts,
        )
        for _, group in groupby(rules, key=lambda rule: rule.group):
            events = [event for rule in group if detail >= rule.detail for event in rule.make(step)]
            kept = (event for event in events if wanted is None or event.name in wanted)
            yield from sorted(kept, key=lambda event: event.env or 0)


def _places(mask: Array) -> list[Place]:
    return [tuple(place) for place in np.argwhere(mask).tolist()]


def _stage_events(step: DeriveContext) -> Iterator[Envelope]:
    """Every change of stage, in order, each followed by the event of its seed."""
    record = step.record
    memory = step.before
    for cause, (before, after) in zip(kinds.REMOVALS, pairwise(STAGE_POINTS), strict=True):
        for at in _places(record[before] != record[after]):
            start, old, new = (
                Stage(int(record[point][at])) for point in ("stage_before", before, after)
            )
            change = kinds.StageChanged(
                from_=old.name,
                to=new.name,
                cause=cause,
                blueprint=None if old is Stage.DORMANT else step.blueprint(at),
                alpha=memory["alpha"][at],
                age=0 if start is Stage.DORMANT else memory["age"][at],
                # 0: a second move
                epochs_in_stage=0 if old != start else memory["epochs_in_stage"][at],
            )
            yield step.envelope(at, change)
            if new in (Stage.GERMINATED, Stage.FOSSILIZED, Stage.PRUNED):
                yield step.envelope(at, _seed_event(step, at, new, cause))


def _seed_event(step: DeriveContext, at: Place, to: Stage, cause: kinds.Cause) -> Event:
    """A seed that germinates, or as of the last epoch before its move."""
    record = step.record
    memory = step.before
    accuracy = step.record["acc_before"][at[0]]
    if to is Stage.GERMINATED:
        return kinds.SeedGerminated(
            blueprint=step.blueprint(at),
            params=record["params"][at],
            algorithm=Algorithm(int(record["algorithm"][at])).name,
            tempo=record["tempo"][at],
            alpha_target=record["blend_target"][at],
            accuracy=accuracy,
        )
    measured = memory["contribution_valid"][at]
    before: dict[str, Any] = {
        "blueprint": step.blueprint(at),
        # counted in the epoch before, or first in this one
        "params": max(memory["params"][at], record["params"][at]),
        "age": memory["age"][at] if record["stage_before"][at] != Stage.DORMANT else 0,
        "contribution": memory["contribution"][at] if measured else None,
        "accuracy_change": float(accuracy) - float(memory["germination_accuracy"][at]),
    }
    if to is Stage.FOSSILIZED:
        return kinds.SeedFossilized(**before, shapley=memory["shapley"][at] if measured else None)
    return kinds.SeedPruned(**before, reason=kinds.REMOVALS[cause])


def _gate_fields(step: DeriveContext, at: Place) -> Json:
    bits = int(step.record["gate_failed"][at])
    failed = [check.name.lower() for check in Check if bits >> check & 1]
    return {
        "gate": Gate(int(step.record["gate"][at])).name,
        "passed": step.record["gate_passed"][at],
        "failed": failed,
    }


def _fault_fields(step: DeriveContext, at: Place) -> Json:
    faults = Fault(int(step.record["fault"][at]))
    return {
        "sign": _panic_name(step, "anomaly", at),
        "faults": [str(fault.name).lower() for fault in faults],
    }


def _regime_fields(step: DeriveContext, at: Place) -> Json:
    return {
        "view": View(int(step.record["view_code"][at])).label,
        "accuracy": step.record["acc_before"][at],
    }


def _panic_name(step: DeriveContext, column: str, at: Place) -> str:
    return Panic(int(step.record[column][at])).name.lower()


def _penalty(step: DeriveContext, at: Place) -> float:
    paid = dict(zip(step.facts.components, step.record["components"][at].tolist(), strict=True))
    return -paid[PENALTY] if PENALTY in paid else 0.0


def _episode_fields(step: DeriveContext, at: Place) -> Json:
    facts = step.facts
    (env,) = at
    named: dict[str, Sequence[str]] = {"components": facts.components, "slot_rewards": facts.slots}
    named |= {"detectors": DETECTORS, "instance": INSTANCE_PARAMETERS, "ops": VALUE_NAMES[Head.OP]}
    kept = in_stages(step.record["stage"][env], OCCUPIED)
    return {
        **{name: array[env] for name, array in step.ends.items()},
        **{
            name: dict(zip(names, step.ends[name][env], strict=True))
            for name, names in named.items()
        },
        "topology": [_episode_seed(step, (env, slot)) for (slot,) in _places(kept)],
    }


def _episode_seed(step: DeriveContext, at: Place) -> kinds.EpisodeSeed:
    return {
        "slot": step.facts.slots[at[1]],
        "blueprint": step.blueprint(at),
        "stage": Stage(int(step.record["stage"][at])).name,
        "alpha": step.record["alpha"][at],
        "contribution": step.after["contribution"][at]
        if step.after["contribution_valid"][at]
        else None,
    }


def _fossils(step: DeriveContext) -> Array:
    return step.record["stage"] == Stage.FOSSILIZED


def _topology_fields(step: DeriveContext, at: Place) -> Json:
    """The manifest of the fossils of an env, and the hash of it."""
    slots: list[Json] = []
    for (slot,) in _places(_fossils(step)[at]):
        place = *at, slot
        seed: Json = {**_episode_seed(step, place)}
        del seed["contribution"]
        algorithm = Algorithm(int(step.record["algorithm"][place])).name
        numbers = {name: step.record[name][place] for name in ("tempo", "params")}
        slots.append({**seed, "algorithm": algorithm, **numbers})
    manifest = tidy({"task": step.facts.task, "host": step.facts.host, "slots": slots})
    return {"sha256": manifest_hash(manifest), "manifest": manifest}


def _alarm_events(step: DeriveContext) -> Iterator[Envelope]:
    for detection in step.detections:
        yield step.envelope((detection.env, detection.slot), detection.event, "info")


def choice_names(values: Array, names: tuple[str, ...], used: Array) -> list[str | None]:
    """The name of the value that each env chose with a head; None where it uses none.  int [E],
    bool [E].
    """
    known = used & (values >= 0) & (values < len(names))
    return [
        names[value] if good else None
        for value, good in zip(values.tolist(), known.tolist(), strict=True)
    ]


def valid_column(record: Record, name: str) -> Array:
    """Return a column; NaN (None in an event), or None in place of a flag, where it is not
    measured; codes by name.
    """
    column = record[name]
    if name in _ENUMS:
        return _ENUMS[name][column]
    if name not in VALID:
        return column
    return np.where(
        expand_flag(record[VALID[name]], column),
        column,
        NO_VALUE if column.dtype == bool else np.nan,
    )


def _name_table(of: type[Stage | Op | Outcome | Reason]) -> Array:
    """The name of every code."""
    table = np.full(max(of) + 1, "", dtype=object)
    table[[int(code) for code in of]] = [code.name for code in of]
    return table


_ENUMS = {
    "stage": _name_table(Stage),
    "outcome": _name_table(Outcome),
    "reason": _name_table(Reason),
}
_ENUMS["op_effective"] = _name_table(Op)
# Columns of fields with other names.
COLUMNS = name_map(
    "loss=val_loss, streak=panic_streak, interaction=interaction_sum, norm=host_layer_norm"
)
Viewed = TypeVar("Viewed", bound=EpochEvent)


def view(kind: type[Viewed], record: Record, **more: Any) -> Viewed:
    """The columns of a record that have the names of the fields of an event, and more fields."""
    columns = {name: COLUMNS.get(name, name) for name in field_names(kind) if name not in more}
    return kind.build(
        **{name: valid_column(record, column) for name, column in columns.items()}, **more
    )


def epoch_event(record: Record) -> kinds.EpochCompleted:
    """State of every env."""
    occupied = in_stages(record["stage"], OCCUPIED)
    ratio = delivered_params(record) / record["host_params"]
    contribution = np.where(occupied, valid_column(record, "contribution"), np.nan)
    return view(kinds.EpochCompleted, record, params_ratio=ratio, contribution=contribution)


MAX_OTHERS = 2  # ops that are reported besides the chosen one


def actions_event(record: Record, facts: RunFacts) -> kinds.ActionsTaken:
    """Chosen actions, their outcomes, and the most likely legal ops besides, the likeliest
    first.
    """
    action = record["action"]
    used = used_heads(action[:, Head.OP])
    names = {**VALUE_NAMES, Head.SLOT: facts.slots, Head.BLUEPRINT: facts.blueprints}
    free = record["op_legal"] & (np.arange(len(Op)) != record["action"][:, :1])
    likely = np.argsort(np.where(free, -record["op_prob"], np.inf), axis=1, kind="stable")[
        :, :MAX_OTHERS
    ]
    return view(
        kinds.ActionsTaken,
        record,
        **{head.label: choice_names(action[:, head], names[head], used[:, head]) for head in Head},
        choices=legal_choices(record),
        others=[[Op(op).name for op in row if free[env, op]] for env, row in enumerate(likely)],
    )


def attribution_event(record: Record) -> kinds.AttributionMissing | None:
    """Seeds without a fresh contribution; `not_exact`: fresh, but its interactions were not
    measured.
    """
    seed = in_stages(record["stage"], OCCUPIED)
    fresh = record["contribution_valid"]
    player = in_stages(record["stage_ticked"], BLENDED) & (record["alpha"] > 0)
    reason = np.where(player & ~record["measured"][:, None], "skipped", "no_player").astype(object)
    reason = np.where(fresh & ~record["interaction_valid"], "not_exact", reason)
    missing = seed & ~(fresh & record["interaction_valid"])
    if not missing.any():
        return None
    return kinds.AttributionMissing.build(reason=np.where(missing, reason, NO_VALUE))


def _about_all(
    group: int,
    kind: type[Event],
    make: Callable[[DeriveContext], Event | None],
    detail: int = DEBUG,
) -> EventRule:
    """A rule with at most one event about all envs."""
    return EventRule(
        group,
        detail,
        frozenset((kind.NAME,)),
        lambda step: (step.envelope((), data) for data in [make(step)] if data),
    )


def _each(
    group: int,
    kind: type[Event],
    where: Callable[[DeriveContext], Array],
    more: Callable[[DeriveContext, Place], Json] = lambda step, at: {},
    detail: int = MINIMAL,
) -> EventRule:
    """A rule with an event for every env or slot in a mask, of columns and the fields of `more`."""

    def make(step: DeriveContext) -> Iterator[Envelope]:
        for at in _places(where(step)):
            own = more(step, at)
            columns = {
                name: COLUMNS.get(name, name) for name in field_names(kind) if name not in own
            }
            data = kind.build(
                **{name: step.record[column][at] for name, column in columns.items()}, **own
            )
            yield step.envelope(at, data)

    return EventRule(group, detail, frozenset((kind.NAME,)), make)


def _is_wrong(step: DeriveContext) -> Array:
    """Envs with a fault that were not rolled back."""
    record = step.record
    return ((record["anomaly"] != Panic.NONE) | (record["fault"] != Fault.NONE)) & ~record[
        "rolled_back"
    ]


def _ablations(step: DeriveContext) -> kinds.AblationsMeasured:
    return view(kinds.AblationsMeasured, step.record)


def _host_gradients(step: DeriveContext) -> kinds.HostGradients | None:
    measured = step.record["host_layer_norm"].size
    return view(kinds.HostGradients, step.record, names=step.facts.layers) if measured else None


LIFE_EVENTS = (kinds.StageChanged, kinds.SeedGerminated, kinds.SeedFossilized, kinds.SeedPruned)
RULES = (  # in the order of an epoch
    _about_all(0, kinds.EpochCompleted, lambda step: epoch_event(step.record), NORMAL),
    _about_all(
        0, kinds.AblationsMeasured, lambda step: _ablations(step) if step.ends else None, NORMAL
    ),
    _each(
        1, kinds.GateEvaluated, lambda step: step.record["gate"] != Gate.NONE, _gate_fields, NORMAL
    ),
    EventRule(1, MINIMAL, frozenset(kind.NAME for kind in LIFE_EVENTS), _stage_events),
    _each(
        1,
        kinds.RolledBack,
        lambda step: step.record["rolled_back"],
        lambda step, at: {"reason": _panic_name(step, "panic", at), "penalty": _penalty(step, at)},
    ),
    _each(1, kinds.AnomalySeen, _is_wrong, _fault_fields, NORMAL),
    _each(1, kinds.RegimeBegan, lambda step: step.record["began"], _regime_fields, NORMAL),
    _each(1, kinds.HostStabilized, lambda step: step.record["settled"], detail=NORMAL),
    _each(
        1,
        kinds.EpisodeCompleted,
        lambda step: np.full(len(step.record["stage"]), bool(step.ends)),
        _episode_fields,
    ),
    _each(
        1,
        kinds.TopologyRecorded,
        lambda step: (_fossils(step).sum(axis=1) > 0) & bool(step.ends),
        _topology_fields,
    ),
    EventRule(2, MINIMAL, frozenset((AnomalyDetected.NAME,)), _alarm_events),
    _about_all(3, kinds.ActionsTaken, lambda step: actions_event(step.record, step.facts)),
    _about_all(3, kinds.HostGradients, _host_gradients),
    _about_all(
        3,
        kinds.SlotsMeasured,
        lambda step: view(kinds.SlotsMeasured, {**step.record, **step.after}),
    ),
    _about_all(3, kinds.AttributionMissing, lambda step: attribution_event(step.record)),
    _about_all(
        3,
        kinds.RewardsPaid,
        lambda step: view(kinds.RewardsPaid, step.record, names=step.facts.components),
    ),
    _about_all(3, kinds.AblationsMeasured, lambda step: None if step.ends else _ablations(step)),
    _each(
        3,
        kinds.SnapshotTaken,
        lambda step: step.record["snapshot_taken"],
        lambda step, at: {"fossils": _fossils(step)[at].sum()},
        DEBUG,
    ),
)
DERIVED_KINDS = frozenset[str]().union(*(rule.names for rule in RULES))
