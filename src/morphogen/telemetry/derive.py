"""Events of envs, slots and epochs: a pure function of the record of a round.  numpy, no tensors.

The one derivation: readers of a run directory use it, and the sinks of a running run that ask for such events.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from morphogen.config.task import INSTANCE_PARAMETERS
from morphogen.storage.codec import Array
from morphogen.telemetry import payloads
from morphogen.telemetry.anomaly import SeedFinding, anomaly_event, detect
from morphogen.telemetry.events import Envelope, Event, Json, tidy
from morphogen.telemetry.jsonl import manifest_hash
from morphogen.telemetry.kinds import epoch as kinds
from morphogen.telemetry.kinds.round import AnomalyDetected
from morphogen.telemetry.round_record import (
    LEVEL_RANK,
    STAGE_POINTS,
    Record,
    RoundRecord,
    RunFacts,
    SlotHistory,
    first_stable,
    in_stages,
    slot_history,
)
from morphogen.vocab.action import Op
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import OCCUPIED, Algorithm, Check, Fault, Gate, Panic, Removal, Stage

CAUSES: dict[kinds.Cause, Removal] = {"action": Removal.ACTION, "tick": Removal.RAMP, "govern": Removal.GOVERNOR}
REMOVAL_NAMES: dict[Removal, kinds.RemovalName] = {
    Removal.ACTION: "action",
    Removal.RAMP: "ramp",
    Removal.GOVERNOR: "governor",
}

OP_NAMES = tuple(op.name for op in Op)


@dataclass(frozen=True, slots=True)
class DeriveContext:
    """Record of one epoch, and its context."""

    record: Record
    memory: SlotHistory  # [E, S], as of the end of the epoch before, germinations of this one noted
    after: SlotHistory  # [E, S], as of the end of this epoch
    settled: Array  # bool [E], hosts whose loss settled for the first time
    totals: Array | None  # float64 [E, C], components of the reward so far; None: not kept
    detections: list[SeedFinding]  # of this epoch
    ends: Record  # of the episodes, at the last epoch; empty before
    round: int
    epoch: int
    facts: RunFacts

    def envelope(self, env: int, data: Event, slot: int | None = None, severity: str = "") -> Envelope:
        """An event of the env in row `env` of the record."""
        number = self.facts.first + int(env)
        return Envelope(
            data,
            round=self.round,
            epoch=self.epoch,
            env=number,
            episode=self.round * self.facts.envs + number,
            slot=None if slot is None else self.facts.slots[slot],
            severity=severity,
        )

    def about_all(self, data: Event) -> Envelope:
        """An event about all envs."""
        return Envelope(data, round=self.round, epoch=self.epoch)


MakeEvents = Callable[[DeriveContext], Iterator[Envelope]]


def derive_events(
    record: RoundRecord, wanted: Collection[str] | None = None, *, first_epoch: int = 0
) -> Iterator[Envelope]:
    """Yield the events of the epochs of a round, as far as the level of each epoch has them.

    In each epoch events about all envs come first, then those of each env, in order, then what stood out, then details.

    Args:
        wanted: names of events; None: all.
        first_epoch: epoch to begin with.
    """
    rules = [rule for rule in RULES if wanted is None or not rule.names.isdisjoint(wanted)]
    if not rules or first_epoch >= record.epochs:
        return
    columns, history, settled = record.columns, slot_history(record.columns), first_stable(record.columns)
    detections = detect(columns)
    totals = np.cumsum(columns["components"], axis=0, dtype=np.float64) if "components" in columns else None
    for epoch, rank in enumerate(record.ranks().tolist()):
        if epoch < first_epoch:
            continue
        step = DeriveContext(
            record.row(epoch),
            history.before(epoch),
            history.at(epoch),
            settled[epoch],
            None if totals is None else totals[epoch],
            [detection for detection in detections if detection.epoch == epoch],
            record.ends if epoch == record.facts.epochs - 1 else {},
            record.round,
            epoch,
            record.facts,
        )
        yield from _epoch_events(step, rank, rules, wanted)


def _epoch_events(
    step: DeriveContext, rank: int, rules: "list[EventRule]", wanted: Collection[str] | None
) -> Iterator[Envelope]:
    for _, group in groupby(rules, key=lambda rule: rule.group):
        events = [event for rule in group if rank >= rule.rank for event in rule.make(step)]
        kept = (event for event in events if wanted is None or event.name in wanted)
        yield from sorted(kept, key=lambda event: event.env or 0)


def _indices(mask: Array) -> list[list[int]]:
    return np.argwhere(mask).tolist()


def _gate_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for env, slot in _indices(record["gate"] != Gate.NONE):
        bits = int(record["gate_failed"][env, slot])
        data = kinds.GateEvaluated(
            gate=Gate(int(record["gate"][env, slot])).name,
            passed=record["gate_passed"][env, slot],
            failed=tuple([check.name.lower() for check in Check if bits >> check & 1]),
        )
        yield step.envelope(env, data, slot)


def _stage_events(step: DeriveContext) -> Iterator[Envelope]:
    """Every change of stage, in order, each followed by the event of its seed."""
    record, memory = step.record, step.memory
    for cause, (before, after) in zip(CAUSES, pairwise(STAGE_POINTS), strict=True):
        for env, slot in _indices(record[before] != record[after]):
            at = env, slot
            start, old, new = (Stage(int(record[point][at])) for point in ("stage_before", before, after))
            change = kinds.StageChanged(
                from_=old.name,
                to=new.name,
                cause=cause,
                blueprint=None if old is Stage.DORMANT else _blueprint_label(record, at, step.facts),
                alpha=memory.alpha[at],
                age=0 if start is Stage.DORMANT else memory.age[at],
                epochs_in_stage=0 if old != start else memory.epochs_in_stage[at],  # 0: its second move in this epoch
            )
            yield step.envelope(env, change, slot)
            if new in (Stage.GERMINATED, Stage.FOSSILIZED, Stage.PRUNED):
                yield step.envelope(env, _seed_event(step, at, new, cause), slot)


def _seed_event(step: DeriveContext, at: tuple[int, int], to: Stage, cause: kinds.Cause) -> Event:
    """A seed that germinates, or as of the last epoch before its move."""
    record, memory = step.record, step.memory
    blueprint, accuracy = _blueprint_label(record, at, step.facts), record["acc_before"][at[0]]
    if to is Stage.GERMINATED:
        return kinds.SeedGerminated(
            blueprint=blueprint,
            params=record["params"][at],
            algorithm=Algorithm(int(record["algorithm"][at])).name,
            tempo=record["tempo"][at],
            alpha_target=record["blend_target"][at],
            accuracy=accuracy,
        )
    measured = memory.contribution_valid[at]
    before: dict[str, Any] = {
        "blueprint": blueprint,
        "params": max(memory.params[at], record["params"][at]),  # counted in the epoch before, or first in this one
        "age": memory.age[at] if record["stage_before"][at] != Stage.DORMANT else 0,
        "contribution": memory.contribution[at] if measured else None,
        "accuracy_change": float(accuracy) - float(memory.germination_accuracy[at]),
    }
    if to is Stage.FOSSILIZED:
        return kinds.SeedFossilized(**before, shapley=memory.shapley[at] if measured else None)
    return kinds.SeedPruned(**before, reason=REMOVAL_NAMES[CAUSES[cause]])


def _blueprint_label(record: Record, at: tuple[int, int], facts: RunFacts) -> str:
    return facts.blueprints[int(record["blueprint"][at])]


def _rollback_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _indices(record["rolled_back"]):
        rollback = kinds.RolledBack(
            reason=Panic(int(record["panic"][env])).name.lower(),
            loss=record["val_loss"][env],
            streak=record["panic_streak"][env],
            **{name: record[name][env] for name in ("loss_limit", "penalty", "seeds_pruned", "snapshot_epoch")},
        )
        yield step.envelope(env, rollback)


def _fault_events(step: DeriveContext) -> Iterator[Envelope]:
    """Faults of envs that were not rolled back."""
    record = step.record
    wrong = (record["anomaly"] != Panic.NONE) | (record["fault"] != Fault.NONE)
    for (env,) in _indices(wrong & ~record["rolled_back"]):
        anomaly = kinds.AnomalySeen(
            sign=Panic(int(record["anomaly"][env])).name.lower(),
            faults=tuple([str(fault.name).lower() for fault in Fault(int(record["fault"][env]))]),
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
        )
        yield step.envelope(env, anomaly)


def _settled_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _indices(step.settled):
        settled = kinds.HostStabilized(stable_epochs=record["stable_epochs"][env], loss=record["val_loss"][env])
        yield step.envelope(env, settled)


def _end_events(step: DeriveContext) -> Iterator[Envelope]:
    if step.ends:
        yield from (step.envelope(env, data) for env, data in enumerate(completed_episodes(step)))


def _topology_events(step: DeriveContext) -> Iterator[Envelope]:
    if step.ends:
        yield from (step.envelope(env, data) for env, data in final_topologies(step))


def _alarm_events(step: DeriveContext) -> Iterator[Envelope]:
    for detection in step.detections:
        severity, data = anomaly_event(detection.finding)
        yield step.envelope(detection.env, data, detection.slot, severity)


def _snapshot_events(step: DeriveContext) -> Iterator[Envelope]:
    record, fossils = step.record, (step.record["stage"] == Stage.FOSSILIZED).sum(axis=1)
    for (env,) in _indices(record["snapshot_taken"]):
        yield step.envelope(env, kinds.SnapshotTaken(loss=record["val_loss"][env], fossils=fossils[env]))


def _about_all(make: Callable[[DeriveContext], Event | None]) -> MakeEvents:
    """A rule with at most one event about all envs."""

    def rule(step: DeriveContext) -> Iterator[Envelope]:
        data = make(step)
        if data is not None:
            yield step.about_all(data)

    return rule


def completed_episodes(step: DeriveContext) -> Iterator[kinds.EpisodeCompleted]:
    """An event for every env, in order, at the last epoch."""
    ends, facts, kept = step.ends, step.facts, in_stages(step.record["stage"], OCCUPIED)
    named = {"components": facts.components, "detectors": DETECTORS, "instance": INSTANCE_PARAMETERS, "ops": OP_NAMES}
    named["slot_rewards"] = facts.slots
    for env in range(len(kept)):
        yield kinds.EpisodeCompleted.build(
            **{name: array[env] for name, array in ends.items() if name not in named},
            **{name: dict(zip(names, ends[name][env], strict=True)) for name, names in named.items()},
            topology=tuple([_episode_seed(step, (env, slot)) for slot in _positions(kept[env])]),
        )


def _positions(mask: Array) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _episode_seed(step: DeriveContext, at: tuple[int, int]) -> kinds.EpisodeSeed:
    record, after = step.record, step.after
    return {
        "slot": step.facts.slots[at[1]],
        "blueprint": _blueprint_label(record, at, step.facts),
        "stage": Stage(int(record["stage"][at])).name,
        "alpha": record["alpha"][at],
        "contribution": after.contribution[at] if after.contribution_valid[at] else None,
    }


def final_topologies(step: DeriveContext) -> Iterator[tuple[int, kinds.TopologyRecorded]]:
    """(env, event) for every env that ends with a fossil: its manifest and the hash of it."""
    record, fossil = step.record, step.record["stage"] == Stage.FOSSILIZED
    for env in _positions(fossil.any(axis=1)):
        slots: list[Json] = []
        for at in ((env, slot) for slot in _positions(fossil[env])):
            seed: Json = {**_episode_seed(step, at)}
            del seed["contribution"]
            algorithm = Algorithm(int(record["algorithm"][at])).name
            numbers = {"tempo": record["tempo"][at], "params": record["params"][at]}
            slots.append({**seed, "algorithm": algorithm, **numbers})
        manifest = tidy({"task": step.facts.task, "host": step.facts.host, "slots": slots})
        yield env, kinds.TopologyRecorded(sha256=manifest_hash(manifest), manifest=manifest)


class EventRule(NamedTuple):
    """Events that are made alike."""

    group: int  # of an epoch: its events are sorted by env
    rank: int  # of the lowest level with them
    names: frozenset[str]
    make: MakeEvents


def _rule(group: int, make: MakeEvents, *events: type[Event], level: str = "") -> EventRule:
    rank = LEVEL_RANK[level or events[0].LEVEL]
    return EventRule(group, rank, frozenset(event.NAME for event in events), make)


def _last_ablations(step: DeriveContext) -> kinds.AblationsMeasured | None:
    return payloads.ablations_event(step.record) if step.ends else None


def _detailed_ablations(step: DeriveContext) -> kinds.AblationsMeasured | None:
    return None if step.ends else payloads.ablations_event(step.record)


RULES = (  # in the order of an epoch
    _rule(0, _about_all(lambda step: payloads.epoch_event(step.record)), kinds.EpochCompleted),
    _rule(0, _about_all(_last_ablations), kinds.AblationsMeasured, level="normal"),
    _rule(1, _gate_events, kinds.GateEvaluated),
    _rule(1, _stage_events, kinds.StageChanged, kinds.SeedGerminated, kinds.SeedFossilized, kinds.SeedPruned),
    _rule(1, _rollback_events, kinds.RolledBack),
    _rule(1, _fault_events, kinds.AnomalySeen),
    _rule(1, _settled_events, kinds.HostStabilized),
    _rule(1, _end_events, kinds.EpisodeCompleted),
    _rule(1, _topology_events, kinds.TopologyRecorded),
    _rule(2, _alarm_events, AnomalyDetected),
    _rule(3, _about_all(lambda step: payloads.actions_event(step.record, step.facts)), kinds.ActionsTaken),
    _rule(3, _about_all(lambda step: payloads.layers_event(step.record, step.facts)), kinds.HostGradients),
    _rule(3, _about_all(lambda step: payloads.slots_event(step.record, step.after)), kinds.SlotsMeasured),
    _rule(3, _about_all(lambda step: payloads.attribution_event(step.record)), kinds.AttributionMissing),
    _rule(3, _about_all(lambda step: payloads.rewards_event(step.record, step.totals, step.facts)), kinds.RewardsPaid),
    _rule(3, _about_all(_detailed_ablations), kinds.AblationsMeasured),
    _rule(3, _snapshot_events, kinds.SnapshotTaken),
)
VIEW_KINDS = frozenset[str]().union(*(rule.names for rule in RULES))
