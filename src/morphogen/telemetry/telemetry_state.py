"""All that telemetry remembers between two epochs, and whether what a checkpoint holds of it fits a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from morphogen.errors import CheckpointError
from morphogen.storage.codec import Tree, check_arrays, pack, unpack
from morphogen.telemetry.dispatch import DispatchState
from morphogen.telemetry.record_memory import EpisodeMemory, RunFacts, initial_memory
from morphogen.telemetry.round_summary import Scale
from morphogen.telemetry.scores import BlueprintTally
from morphogen.telemetry.watcher import DetectionState, MonitorState
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.observation import VECTORS
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.text import format_value


@dataclass(frozen=True, slots=True)
class TelemetryState:
    """State of a reporter."""

    memory: EpisodeMemory | None  # None: before the first epoch of the run
    rolling: tuple[float, ...]  # mean accuracies of the last rounds
    first: Scale | None  # after the first round
    seeds: Mapping[str, BlueprintTally]  # of all rounds so far, by blueprint
    seen: MonitorState
    raised: DispatchState


def unpack_state(tree: Tree, facts: RunFacts, where: str) -> TelemetryState:
    """The state that a tree holds; a CheckpointError by name where it is not of this run."""
    found: TelemetryState = unpack(TelemetryState, tree, where)
    envs, slots = facts.envs, len(facts.slots)
    record = {
        "stage": np.zeros((envs, slots), dtype=np.int8),
        "acc_before": np.zeros(envs),
        "detectors": np.zeros((envs, slots, len(DETECTORS)), dtype=bool),
        "skipped": np.zeros(envs, dtype=np.int32),
    }
    features = np.zeros(sum(one.normalised for row in VECTORS.values() for one in row))
    if found.memory is not None:
        check_arrays(tree["memory"], pack(initial_memory(record, facts)), f"{where}.memory")
    if found.first is not None:
        check_arrays(tree["first"], pack((features, features)), f"{where}.first")
    if found.seen.sights is not None:
        check_arrays(tree["seen"]["sights"], pack(DetectionState.empty(record)), f"{where}.seen.sights")
    for name, tally in found.seeds.items():
        _check_name(name, [one.label for one in Blueprint], f"{where}.seeds")
        for slot in tally.slots:
            _check_name(slot, facts.slots, f"{where}.seeds.{name}.slots")
    return found


def _check_name(name: str, names: Sequence[str], where: str) -> None:
    if name not in names:
        raise CheckpointError(f"{where} names {format_value(name)}; want one of {', '.join(names)}")
