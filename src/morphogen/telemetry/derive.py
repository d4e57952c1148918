"""Events of an epoch: a pure function of its record and a small memory.  No tensors.

A record is a mapping from leaf names to arrays [E, ...]; its schema is `run.record.record`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from morphogen.telemetry import epoch_events as epochs
from morphogen.telemetry.episode_events import completed_episodes, final_topologies
from morphogen.telemetry.event_tally import Array, Record
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.env import AnomalySeen, HostStabilized, RolledBack, SnapshotTaken
from morphogen.telemetry.kinds.slot import GateEvaluated, SeedFossilized, SeedGerminated, SeedPruned, StageChanged
from morphogen.telemetry.record_memory import STAGE_POINTS, EpisodeMemory, RunFacts
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.fault import Fault
from morphogen.vocab.stage import Algorithm, Check, Gate, Panic, Removal, Stage

CAUSES = {"action": Removal.ACTION, "tick": Removal.RAMP, "govern": Removal.GOVERNOR}
PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing


@dataclass(frozen=True, slots=True)
class DeriveContext:
    """One epoch as it is being told."""

    record: Record
    memory: EpisodeMemory  # as of the end of the epoch before, germinations of this one noted
    round: int
    epoch: int
    facts: RunFacts

    def envelope(self, env: int, data: Event, slot: int | None = None) -> Envelope:
        """An event of the env in row `env` of the record."""
        number = self.facts.first + int(env)
        return Envelope(
            data,
            round=self.round,
            epoch=self.epoch,
            env=number,
            episode=self.round * self.facts.envs + number,
            slot=None if slot is None else self.facts.slots[slot],
        )


def derive_events(
    record: Record, memories: tuple[EpisodeMemory, EpisodeMemory], position: tuple[int, int], facts: RunFacts
) -> tuple[Envelope, ...]:
    """The events of the epoch at (round, epoch) up to the normal level; memories: as `remember` returns them.

    What is about all envs comes first, then env by env what happened, in its order.
    """
    (round, epoch), (told, after) = position, memories
    step = DeriveContext(record, told, round, epoch, facts)
    found = [
        *_gate_events(step),
        *_stage_events(step),
        *_rollback_events(step),
        *_anomaly_events(step),
        *_stabilization_events(step),
    ]
    if epoch == facts.epochs - 1:
        found += [step.envelope(env, data) for env, data in completed_episodes(record, after, facts)]
        found += [step.envelope(env, data) for env, data in final_topologies(record, after, facts)]
    return (*_epoch_events(step), *sorted(found, key=lambda event: event.env or 0))


def derive_details(
    record: Record, memory: EpisodeMemory, position: tuple[int, int], facts: RunFacts
) -> tuple[Envelope, ...]:
    """The events of an epoch that only the debug level writes.  memory: that after the epoch."""
    round, epoch = position
    found = [*epochs.debug_events(record, memory, facts)]
    if epoch < facts.epochs - 1:
        found.append(epochs.ablations_event(record))
    kept = _snapshot_events(DeriveContext(record, memory, round, epoch, facts))
    return (*(Envelope(data, round=round, epoch=epoch) for data in found), *kept)


def _epoch_events(step: DeriveContext) -> Iterator[Envelope]:
    """State of all envs; after the last epoch of a round also the contribution of every seed."""
    yield Envelope(epochs.epoch_event(step.record), round=step.round, epoch=step.epoch)
    if step.epoch == step.facts.epochs - 1:
        worth = epochs.ablations_event(step.record)
        yield Envelope(worth, round=step.round, epoch=step.epoch, level="normal")


def _indices(mask: Array) -> list[list[int]]:
    return np.argwhere(mask).tolist()


def _gate_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for env, slot in _indices(record["gate"] != Gate.NONE):
        bits = int(record["gate_failed"][env, slot])
        data = GateEvaluated(
            gate=Gate(int(record["gate"][env, slot])).name,
            passed=record["gate_passed"][env, slot],
            failed=[check.name.lower() for check in Check if bits >> check & 1],
        )
        yield step.envelope(env, data, slot)


def _stage_events(step: DeriveContext) -> Iterator[Envelope]:
    """Every change of stage, in order, each followed by what it means."""
    for cause, (before, after) in zip(CAUSES, pairwise(STAGE_POINTS), strict=True):
        for env, slot in _indices(step.record[before] != step.record[after]):
            here, there = (Stage(int(step.record[when][env, slot])) for when in (before, after))
            yield step.envelope(env, _stage_change(step, (env, slot), (here, there), cause), slot)
            yield from (step.envelope(env, data, slot) for data in _seed_events(step, (env, slot), there, cause))


def _stage_change(step: DeriveContext, at: tuple[int, int], move: tuple[Stage, Stage], cause: str) -> StageChanged:
    record, memory = step.record, step.memory
    start = Stage(int(record["stage_before"][at]))
    moved = move[0] != start  # for the second time in this epoch
    return StageChanged(
        from_=move[0].name,
        to=move[1].name,
        cause=cause,
        blueprint=None if move[0] is Stage.DORMANT else _blueprint_label(step, at),
        alpha=memory.alpha[at],
        age=0 if start is Stage.DORMANT else memory.age[at],
        epochs_in_stage=0 if moved else memory.epochs_in_stage[at],
    )


def _seed_events(step: DeriveContext, at: tuple[int, int], to: Stage, cause: str) -> Iterator[Event]:
    if to is Stage.GERMINATED:
        yield _germination(step, at)
    elif to is Stage.FOSSILIZED:
        yield SeedFossilized(**_seed_before_move(step, at), shapley=_valid_value(step, at, step.memory.shapley))
    elif to is Stage.PRUNED:
        yield SeedPruned(**_seed_before_move(step, at), reason=CAUSES[cause].name.lower())


def _germination(step: DeriveContext, at: tuple[int, int]) -> SeedGerminated:
    record = step.record
    return SeedGerminated(
        blueprint=_blueprint_label(step, at),
        params=record["params"][at],
        algorithm=Algorithm(int(record["algorithm"][at])).name,
        tempo=record["tempo"][at],
        alpha_target=record["blend_target"][at],
        accuracy=record["acc_before"][at[0]],
    )


def _seed_before_move(step: DeriveContext, at: tuple[int, int]) -> dict[str, object]:
    """A seed as of the last epoch before it moved."""
    record, memory = step.record, step.memory
    return {
        "blueprint": _blueprint_label(step, at),
        "params": max(memory.params[at], record["params"][at]),  # counted in the epoch before, or first in this one
        "age": memory.age[at] if record["stage_before"][at] != Stage.DORMANT else 0,
        "contribution": _valid_value(step, at, memory.contribution),
        "accuracy_change": float(record["acc_before"][at[0]]) - float(memory.germination_accuracy[at]),
    }


def _valid_value(step: DeriveContext, at: tuple[int, int], values: Array) -> float | None:
    return values[at] if step.memory.contribution_valid[at] else None


def _blueprint_label(step: DeriveContext, at: tuple[int, int]) -> str:
    return Blueprint(int(step.record["blueprint"][at])).label


def _rollback_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    names = step.facts.components
    penalty = -record["components"][:, names.index(PENALTY)] if PENALTY in names else np.zeros(len(record["reward"]))
    for (env,) in _indices(record["rolled_back"]):
        data = RolledBack(
            reason=Panic(int(record["panic"][env])).name.lower(),
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
            penalty=penalty[env],
            seeds_pruned=record["seeds_pruned"][env],
            snapshot_epoch=record["snapshot_epoch"][env],
        )
        yield step.envelope(env, data)


def _anomaly_events(step: DeriveContext) -> Iterator[Envelope]:
    """Faults of envs that were not rolled back."""
    record = step.record
    wrong = (record["anomaly"] != Panic.NONE) | (record["fault"] != Fault.NONE)
    for (env,) in _indices(wrong & ~record["rolled_back"]):
        data = AnomalySeen(
            sign=Panic(int(record["anomaly"][env])).name.lower(),
            faults=[str(fault.name).lower() for fault in Fault(int(record["fault"][env]))],
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
        )
        yield step.envelope(env, data)


def _snapshot_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _indices(record["snapshot_taken"]):
        fossils = (record["stage"][env] == Stage.FOSSILIZED).sum()
        yield step.envelope(env, SnapshotTaken(loss=record["val_loss"][env], fossils=fossils))


def _stabilization_events(step: DeriveContext) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _indices(record["stabilized"] & ~step.memory.stabilized):
        data = HostStabilized(stable_epochs=record["stable_epochs"][env], loss=record["val_loss"][env])
        yield step.envelope(env, data)
