"""What happened, told from the record of an epoch: a pure function of the record and a small memory.  No tensors.

A record is a mapping from leaf names to arrays [E, ...]; its schema is `run.record.record`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from morphogen.telemetry import epoch_events as epochs
from morphogen.telemetry.episode_events import episodes, topologies
from morphogen.telemetry.events import Envelope, Event
from morphogen.telemetry.kinds.env import AnomalySeen, HostStabilized, RolledBack, SnapshotTaken
from morphogen.telemetry.kinds.slot import GateEvaluated, SeedFossilized, SeedGerminated, SeedPruned, StageChanged
from morphogen.telemetry.names import Array, Record
from morphogen.telemetry.record_memory import MOMENTS, Facts, Memory
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.fault import Fault
from morphogen.vocab.stage import Algorithm, Check, Gate, Panic, Removal, Stage

CAUSES = {"action": Removal.ACTION, "tick": Removal.RAMP, "govern": Removal.GOVERNOR}
PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch as it is being told."""

    record: Record
    memory: Memory  # as of the end of the epoch before, germinations of this one noted
    round: int
    epoch: int
    facts: Facts

    def about(self, env: int, data: Event, slot: int | None = None) -> Envelope:
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


def events(
    record: Record, memories: tuple[Memory, Memory], position: tuple[int, int], facts: Facts
) -> tuple[Envelope, ...]:
    """The events of the epoch at (round, epoch) up to the normal level; memories: as `remember` returns them.

    What is about all envs comes first, then env by env what happened, in its order.
    """
    (round, epoch), (told, after) = position, memories
    step = Step(record, told, round, epoch, facts)
    found = [*_gates(step), *_moves(step), *_rollbacks(step), *_anomalies(step), *_stabilized(step)]
    if epoch == facts.epochs - 1:
        found += [step.about(env, data) for env, data in episodes(record, after, facts)]
        found += [step.about(env, data) for env, data in topologies(record, after, facts)]
    return (*_epoch(step), *sorted(found, key=lambda event: event.env or 0))


def details(record: Record, memory: Memory, position: tuple[int, int], facts: Facts) -> tuple[Envelope, ...]:
    """The events of an epoch that only the debug level writes.  memory: that after the epoch."""
    round, epoch = position
    found = [*epochs.details(record, memory, facts)]
    if epoch < facts.epochs - 1:
        found.append(epochs.ablations_measured(record))
    kept = _snapshots(Step(record, memory, round, epoch, facts))
    return (*(Envelope(data, round=round, epoch=epoch) for data in found), *kept)


def _epoch(step: Step) -> Iterator[Envelope]:
    """How all envs stand; after the last epoch of a round also what every seed is worth."""
    yield Envelope(epochs.epoch_completed(step.record), round=step.round, epoch=step.epoch)
    if step.epoch == step.facts.epochs - 1:
        worth = epochs.ablations_measured(step.record)
        yield Envelope(worth, round=step.round, epoch=step.epoch, level="normal")


def _where(mask: Array) -> list[list[int]]:
    return np.argwhere(mask).tolist()


def _gates(step: Step) -> Iterator[Envelope]:
    record = step.record
    for env, slot in _where(record["gate"] != Gate.NONE):
        bits = int(record["gate_failed"][env, slot])
        data = GateEvaluated(
            gate=Gate(int(record["gate"][env, slot])).name,
            passed=record["gate_passed"][env, slot],
            failed=[check.name.lower() for check in Check if bits >> check & 1],
        )
        yield step.about(env, data, slot)


def _moves(step: Step) -> Iterator[Envelope]:
    """Every change of stage, in order, each followed by what it means."""
    for cause, (before, after) in zip(CAUSES, pairwise(MOMENTS), strict=True):
        for env, slot in _where(step.record[before] != step.record[after]):
            here, there = (Stage(int(step.record[when][env, slot])) for when in (before, after))
            yield step.about(env, _change(step, (env, slot), (here, there), cause), slot)
            yield from (step.about(env, data, slot) for data in _meaning(step, (env, slot), there, cause))


def _change(step: Step, at: tuple[int, int], move: tuple[Stage, Stage], cause: str) -> StageChanged:
    record, memory = step.record, step.memory
    start = Stage(int(record["stage_before"][at]))
    moved = move[0] != start  # for the second time in this epoch
    return StageChanged(
        from_=move[0].name,
        to=move[1].name,
        cause=cause,
        blueprint=None if move[0] is Stage.DORMANT else _blueprint(step, at),
        alpha=memory.alpha[at],
        age=0 if start is Stage.DORMANT else memory.age[at],
        epochs_in_stage=0 if moved else memory.epochs_in_stage[at],
    )


def _meaning(step: Step, at: tuple[int, int], to: Stage, cause: str) -> Iterator[Event]:
    if to is Stage.GERMINATED:
        yield _germinated(step, at)
    elif to is Stage.FOSSILIZED:
        yield SeedFossilized(**_past(step, at), shapley=_measured(step, at, step.memory.shapley))
    elif to is Stage.PRUNED:
        yield SeedPruned(**_past(step, at), reason=CAUSES[cause].name.lower())


def _germinated(step: Step, at: tuple[int, int]) -> SeedGerminated:
    record = step.record
    return SeedGerminated(
        blueprint=_blueprint(step, at),
        params=record["params"][at],
        algorithm=Algorithm(int(record["algorithm"][at])).name,
        tempo=record["tempo"][at],
        alpha_target=record["blend_target"][at],
        accuracy=record["acc_before"][at[0]],
    )


def _past(step: Step, at: tuple[int, int]) -> dict[str, object]:
    """A seed as of the last epoch before it moved."""
    record, memory = step.record, step.memory
    return {
        "blueprint": _blueprint(step, at),
        "params": max(memory.params[at], record["params"][at]),  # counted in the epoch before, or first in this one
        "age": memory.age[at] if record["stage_before"][at] != Stage.DORMANT else 0,
        "contribution": _measured(step, at, memory.contribution),
        "accuracy_change": float(record["acc_before"][at[0]]) - float(memory.germination_accuracy[at]),
    }


def _measured(step: Step, at: tuple[int, int], values: Array) -> float | None:
    return values[at] if step.memory.contribution_valid[at] else None


def _blueprint(step: Step, at: tuple[int, int]) -> str:
    return Blueprint(int(step.record["blueprint"][at])).label


def _rollbacks(step: Step) -> Iterator[Envelope]:
    record = step.record
    names = step.facts.components
    penalty = -record["components"][:, names.index(PENALTY)] if PENALTY in names else np.zeros(len(record["reward"]))
    for (env,) in _where(record["rolled_back"]):
        data = RolledBack(
            reason=Panic(int(record["panic"][env])).name.lower(),
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
            penalty=penalty[env],
            seeds_pruned=record["seeds_pruned"][env],
            snapshot_epoch=record["snapshot_epoch"][env],
        )
        yield step.about(env, data)


def _anomalies(step: Step) -> Iterator[Envelope]:
    """What was wrong where nothing was rolled back."""
    record = step.record
    wrong = (record["anomaly"] != Panic.NONE) | (record["fault"] != Fault.NONE)
    for (env,) in _where(wrong & ~record["rolled_back"]):
        data = AnomalySeen(
            sign=Panic(int(record["anomaly"][env])).name.lower(),
            faults=[str(fault.name).lower() for fault in Fault(int(record["fault"][env]))],
            loss=record["val_loss"][env],
            loss_limit=record["loss_limit"][env],
            streak=record["panic_streak"][env],
        )
        yield step.about(env, data)


def _snapshots(step: Step) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _where(record["snapshot_taken"]):
        fossils = (record["stage"][env] == Stage.FOSSILIZED).sum()
        yield step.about(env, SnapshotTaken(loss=record["val_loss"][env], fossils=fossils))


def _stabilized(step: Step) -> Iterator[Envelope]:
    record = step.record
    for (env,) in _where(record["stabilized"] & ~step.memory.stabilized):
        data = HostStabilized(stable_epochs=record["stable_epochs"][env], loss=record["val_loss"][env])
        yield step.about(env, data)
