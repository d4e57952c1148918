"""Memory of telemetry between the epochs of an episode: a few numbers per env and slot.  numpy, no tensors."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.telemetry import event_tally
from morphogen.telemetry.event_tally import Array, Record, RoundTally
from morphogen.vocab.action import Op
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

STABILITY_EPOCHS = 20  # differences of accuracy that stability looks at


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Constants of a run that events need."""

    task: str
    slots: tuple[str, ...]
    components: tuple[str, ...]  # of the reward, in recorded order
    epochs: int  # per episode
    success_accuracy: float  # percent
    gamma: float
    envs: int  # of the whole run
    samples: int  # that a host is trained on, per epoch
    first: int = 0  # global index of the first env in a record
    host: dict[str, Any] = field(default_factory=dict)  # numbers of the host, for the manifest of a topology


@dataclass(frozen=True, slots=True)
class EpisodeMemory:
    """Arrays [E], [E, S] or [E, n]; accuracies in percent."""

    # of each slot, as of the end of the last epoch
    alpha: Array
    age: Array
    epochs_in_stage: Array
    params: Array
    contribution: Array  # last measured
    shapley: Array
    contribution_valid: Array
    germination_accuracy: Array  # before the seed was there
    # of each env, over the episode
    initial_accuracy: Array
    recent: Array  # [E, 21] accuracies, newest last, NaN where there was no epoch yet
    reward: Array
    discounted: Array
    components: Array  # [E, C]
    detectors: Array  # [E, 2] hits
    unmeasured: Array  # epochs
    germinated: Array
    fossilized: Array
    pruned: Array
    rollbacks: Array
    ops: Array  # [E, 6] effective ops
    stabilized: Array  # bool
    tally: RoundTally  # of all envs


def initial_memory(record: Record, facts: RunFacts) -> EpisodeMemory:
    """The memory before the first epoch of an episode, whose record this is."""
    envs, slots = record["stage"].shape
    whole = np.zeros((envs, slots), dtype=np.int64)
    real = np.zeros((envs, slots))
    count = np.zeros(envs, dtype=np.int64)
    return EpisodeMemory(
        alpha=real,
        age=whole,
        epochs_in_stage=whole,
        params=whole,
        contribution=real,
        shapley=real,
        contribution_valid=np.zeros((envs, slots), dtype=bool),
        germination_accuracy=real,
        initial_accuracy=record["acc_before"],
        recent=np.full((envs, STABILITY_EPOCHS + 1), np.nan),
        reward=np.zeros(envs),
        discounted=np.zeros(envs),
        components=np.zeros((envs, len(facts.components))),
        detectors=np.zeros((envs, 2), dtype=np.int64),
        unmeasured=count,
        germinated=count,
        fossilized=count,
        pruned=count,
        rollbacks=count,
        ops=np.zeros((envs, len(Op)), dtype=np.int64),
        stabilized=np.zeros(envs, dtype=bool),
        tally=event_tally.empty_tally(slots, len(facts.components)),
    )


def update_memory(
    record: Record, memory: EpisodeMemory | None, position: tuple[int, int], facts: RunFacts
) -> tuple[EpisodeMemory, EpisodeMemory]:
    """The memory with which the epoch at (round, epoch) is told, its germinations noted, and the memory after it.

    At epoch 0 of a round the memory is begun anew; before, it may be None.
    """
    round, epoch = position
    if epoch == 0:
        memory = initial_memory(record, facts)
    if memory is None:
        raise ValueError(f"epoch {epoch + 1} of round {round + 1} has no memory: expected the result of epoch {epoch}")
    told = note_germinations(memory, record)
    return told, advance_memory(told, record, epoch, facts)


def note_germinations(memory: EpisodeMemory, record: Record) -> EpisodeMemory:
    """Note at which accuracy seeds were germinated in this epoch."""
    born = stage_entries(record, Stage.GERMINATED)
    accuracy = np.where(born, record["acc_before"][:, None], memory.germination_accuracy)
    return replace(memory, germination_accuracy=accuracy)


def advance_memory(memory: EpisodeMemory, record: Record, epoch: int, facts: RunFacts) -> EpisodeMemory:
    """The memory after an epoch."""
    reward = record["reward"].astype(np.float64)
    return replace(
        _slot_memory(memory, record),
        recent=np.concatenate((memory.recent[:, 1:], record["val_acc"][:, None]), axis=1),
        reward=memory.reward + reward,
        discounted=memory.discounted + facts.gamma**epoch * reward,
        components=memory.components + record["components"],
        detectors=memory.detectors + record["detectors"].sum(axis=1),
        unmeasured=memory.unmeasured + record["unmeasured"],
        germinated=memory.germinated + stage_entries(record, Stage.GERMINATED).sum(axis=1),
        fossilized=memory.fossilized + stage_entries(record, Stage.FOSSILIZED).sum(axis=1),
        pruned=memory.pruned + stage_entries(record, Stage.PRUNED).sum(axis=1),
        rollbacks=memory.rollbacks + record["rolled_back"],
        ops=memory.ops + (record["op_effective"][:, None] == np.arange(len(Op))),
        stabilized=memory.stabilized | record["stabilized"],
        tally=event_tally.add_epoch(memory.tally, record),
    )


def _slot_memory(memory: EpisodeMemory, record: Record) -> EpisodeMemory:
    """Counters as they stand after the epoch was closed; a seed that is gone has no contribution."""
    stage, occupied = record["stage"], in_stages(record["stage"], OCCUPIED)
    filled = stage != Stage.DORMANT
    stayed = np.where(stage == record["stage_ticked"], record["epochs_in_stage"], 0)
    fresh = record["contribution_valid"] & occupied
    return replace(
        memory,
        alpha=record["alpha"],
        age=np.where(occupied, record["age"] + 1, np.where(filled, record["age"], 0)),
        epochs_in_stage=np.where(filled, stayed + 1, 0),
        params=np.where(occupied, record["params"], 0),
        contribution=np.where(fresh, record["contribution"], np.where(occupied, memory.contribution, 0.0)),
        shapley=np.where(fresh, record["shapley"], np.where(occupied, memory.shapley, 0.0)),
        contribution_valid=(fresh | memory.contribution_valid) & occupied,
    )


STAGE_POINTS = ("stage_before", "stage_acted", "stage_ticked", "stage")  # the four points of an epoch


def stage_entries(record: Record, stage: Stage) -> Array:
    """Return whether a slot entered a stage in the epoch: bool [E, S]."""
    code = int(stage)  # which numpy compares faster than a member of an enum
    came = [(record[b] != code) & (record[a] == code) for b, a in pairwise(STAGE_POINTS)]
    return came[0] | came[1] | came[2]


def in_stages(stage: Array, stages: tuple[Stage, ...]) -> Array:
    """Return whether the stage is one of `stages`, a range of codes: bool [E, S]."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))


def stability(accuracies: Array) -> float:
    """`1 / (1 + variance)` of the differences between accuracies in order; NaN = no epoch; 1 below two of them."""
    steps = np.diff(accuracies[~np.isnan(accuracies)])
    return float(1.0 / (1.0 + steps.var())) if steps.size > 1 else 1.0


def delivered_params(record: Record) -> Array:
    """Parameters of the host with the seeds that are blended in, int64 [E]."""
    blended = in_stages(record["stage"], BLENDED)
    return record["host_params"] + np.where(blended, record["params"], 0).sum(axis=1)
