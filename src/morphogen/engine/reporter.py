"""Reporter: derives events from the records of epochs, and summaries of rounds.

State that the next epoch needs is updated at once; the writer thread derives the events of an epoch.  The reporter
reads copies only: nothing in a run depends on the reporter.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.task import INSTANCE_PARAMETERS
from morphogen.engine.episodes import Epoch
from morphogen.engine.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.rules.legality import head_value_counts
from morphogen.state.tree_ops import constant_table, unsafe_new
from morphogen.storage.codec import Tree, check_arrays, pack, unpack
from morphogen.telemetry.anomaly import AnomalyMonitor, DetectionState, MonitorState
from morphogen.telemetry.derive import completed_episodes, derive_details, derive_events
from morphogen.telemetry.dispatch import AnySink, Dispatcher, DispatchState, Losses, PendingEvents
from morphogen.telemetry.events import Envelope, Event, RoundEvent
from morphogen.telemetry.kinds.epoch import EpisodeCompleted
from morphogen.telemetry.kinds.ppo import ppo_event
from morphogen.telemetry.kinds.round import BatchSummary, BlueprintScores
from morphogen.telemetry.record_memory import EpisodeMemory, Record, RunFacts, initial_memory, update_memory
from morphogen.telemetry.round_summary import (
    RoundCosts,
    Scale,
    normaliser_scale,
    round_events,
    summarise,
    throughput_events,
)
from morphogen.telemetry.scores import BlueprintTally, add_tallies, event_tallies, scoreboard
from morphogen.vocab.action import Head
from morphogen.vocab.blueprint import code_labels
from morphogen.vocab.observation import FEATURES
from morphogen.vocab.reward import DETECTORS
from morphogen.vocab.stage import Fault, Removal, Stage
from morphogen.vocab.text import format_value, name_map


def build_facts(setup: Setup) -> RunFacts:
    """Constants of a run that events need."""
    spec, net = setup.spec, setup.net
    return RunFacts(
        task=spec.task,
        slots=net.names,
        blueprints=code_labels(net.kinds),
        macs=net.macs(),
        components=setup.rule.components,
        epochs=spec.episode_length,
        success_accuracy=setup.task.success,
        gamma=spec.ppo.gamma,
        envs=spec.envs,
        samples=spec.data.minibatches * spec.data.batch,
        host=net.host.numbers(),
    )


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
    state: TelemetryState = unpack(TelemetryState, tree, where)
    envs, slots = facts.envs, len(facts.slots)
    record = {
        "stage": np.zeros((envs, slots), dtype=np.int8),
        "acc_before": np.zeros(envs),
        "detectors": np.zeros((envs, slots, len(DETECTORS)), dtype=bool),
        "skipped": np.zeros(envs, dtype=np.int32),
    }
    features = np.zeros(sum(feature.normalised for row in FEATURES.values() for feature in row))
    if state.memory is not None:
        check_arrays(tree["memory"], pack(initial_memory(record, facts)), f"{where}.memory")
    if state.first is not None:
        check_arrays(tree["first"], pack((features, features)), f"{where}.first")
    if state.seen.sights is not None:
        check_arrays(tree["seen"]["sights"], pack(DetectionState.empty(record)), f"{where}.seen.sights")
    for name, tally in state.seeds.items():
        labels, place = facts.blueprints, f"{where}.seeds"
        used = [(name, labels, place), *((slot, facts.slots, f"{place}.{name}.slots") for slot in tally.slots)]
        for item, names, place in used:
            if item not in names:
                raise CheckpointError(f"{place}: expected one of {', '.join(names)}, got {format_value(item)}")
    return state


class SeedTallies:
    """Tallies of seeds so far, computed on first use, mostly in the writer thread."""

    def __init__(self, before: Mapping[str, BlueprintTally], pending: Sequence[PendingEvents] = ()) -> None:
        self._tallies, self._pending, self._lock = before, tuple(pending), threading.Lock()

    def tallies(self) -> Mapping[str, BlueprintTally]:
        """By blueprint."""
        for moment in self._pending:
            _ = moment.events  # outside the lock: deriving events may wait for the lock
        with self._lock:
            events = (event for moment in self._pending for event in moment.events)
            self._tallies, self._pending = reduce(add_tallies, map(event_tallies, events), self._tallies), ()
            return self._tallies


class Reporter:
    """Events and summaries of one run."""

    def __init__(self, setup: Setup, sinks: Sequence[AnySink]) -> None:
        self._facts, telemetry = build_facts(setup), setup.spec.telemetry
        self._dispatch = Dispatcher(sinks, telemetry, epochs=self._facts.epochs)
        self._watcher = AnomalyMonitor(self._facts, telemetry, rounds=setup.spec.rounds)
        self._memory: EpisodeMemory | None = None
        self._episodes: tuple[EpisodeCompleted, ...] = ()
        self._rolling: tuple[float, ...] = ()
        self._first_scale: Scale | None = None
        self._seeds, self._pending = SeedTallies({}), list[PendingEvents]()  # of earlier rounds; of this one

    def add_sinks(self, sinks: Sequence[AnySink]) -> None:
        """Add sinks, which receive all later events."""
        self._dispatch.add_sinks(sinks)

    def emit(self, *events: Event, round: int | None = None) -> None:
        """Emit events about the run or a round."""
        self._dispatch.emit([Envelope(event, round=round) for event in events])

    def add_record(self, record: Record, position: tuple[int, int]) -> None:
        """Take in the record of the epoch at (round, epoch)."""
        known = self._facts
        memories = update_memory(record, self._memory, position, known)
        after = memories[1]
        if position[1] == known.epochs - 1:
            self._episodes = tuple(completed_episodes(record, after, known))
        signs, report = self._watcher.end_epoch(record, position)
        moment = PendingEvents(
            lambda: (*derive_events(record, memories, position, known), *signs),
            lambda: derive_details(record, after, position, known),
        )
        self._dispatch.emit_epoch(moment, report)
        if self._dispatch.has_sinks:
            self._pending.append(moment)
        self._memory = after

    def end_round(self, round: int, metrics: Mapping[str, Any], costs: RoundCosts) -> BatchSummary:
        """Emit the events of a round after its last record; return its summary.  metrics: of the `update` transfer."""
        trained = "steps_done" in metrics
        update = (ppo_event(metrics, update_s=costs.update_s),) if trained else ()
        before = self._rolling
        rollbacks = sum(episode.rollbacks for episode in self._episodes)
        kinds, signs, report = self._watcher.end_round(round, metrics, rollbacks, costs.memory)
        summary, self._rolling = summarise(
            self._episodes,
            before,
            round=round,
            updated=trained and bool(metrics["steps_done"] > 0),
            costs=costs,
            anomalies=kinds,
        )
        pace = throughput_events(costs, samples=self._facts.samples)
        events = (*update, summary, *self._round_details(metrics), *pace, *self._watcher.trend_events(summary, before))
        envelopes = [*(Envelope(event, round=round) for event in events), *signs]
        self._dispatch.emit(envelopes, self._scores_event(round))
        self._dispatch.update_level(report)
        return summary

    def _scores_event(self, round: int) -> Callable[[], Envelope]:
        seeds = SeedTallies(self._seeds.tallies(), self._pending)
        self._seeds, self._pending = seeds, []
        return lambda: Envelope(BlueprintScores(scoreboard(seeds.tallies(), self._facts.macs)), round=round)

    def _round_details(self, metrics: Mapping[str, Any]) -> tuple[RoundEvent, ...]:
        """Diagnostics of the round; empty before the first record."""
        if self._memory is None:
            return ()
        self._first_scale = self._first_scale or normaliser_scale(metrics)
        return tuple(round_events(self._memory.tally, metrics, self._first_scale, self._facts))

    def state(self) -> Tree:
        """Pack the state between two epochs for a checkpoint.  Changes nothing."""
        seeds = SeedTallies(self._seeds.tallies(), self._pending).tallies()
        parts = (self._memory, self._rolling, self._first_scale, seeds)
        return pack(TelemetryState(*parts, self._watcher.state, self._dispatch.state()))

    def restore(self, tree: Tree) -> None:
        """Restore the state of a reporter of the same run.  Raises CheckpointError for a state of another form."""
        saved = unpack_state(tree, self._facts, "telemetry")
        self._memory, self._rolling, self._first_scale = saved.memory, saved.rolling, saved.first
        self._seeds, self._pending, self._watcher.state = SeedTallies(saved.seeds), [], saved.seen
        self._dispatch.restore(saved.raised, "telemetry.raised")

    def drain(self) -> Tree:
        """Write all emitted events; return the positions of the sinks.  Waits for files."""
        return pack(self._dispatch.drain())

    def close(self, *final_events: Event) -> Losses:
        """Emit the final events, wait until all events are written or dropped, and return the losses."""
        return self._dispatch.close(*final_events)


_INT8_NAMES = ("stage_before", "stage_acted", "stage_ticked", "stage", "blueprint", "algorithm", "gate", "removal")
_INT8_NAMES += ("op_effective", "outcome", "reason", "panic", "anomaly")
_INT16_NAMES = ("since_measured", "age", "epochs_in_stage", "gate_failed", "action", "legal_choices", "tempo")
_INT16_NAMES += ("panic_streak", "snapshot_epoch", "stable_epochs")
# Narrow integers; all others are int32.
_SMALL_DTYPES = {**dict.fromkeys(_INT8_NAMES, torch.int8), **dict.fromkeys(_INT16_NAMES, torch.int16)}
# Part of an epoch -> leaves of the record, each with the leaf of the part if that has another name.
_RECORDED = {
    "before.signals": "loss_before=val_loss, acc_before=val_acc",
    "before.slots": "stage_before=stage",
    "seen": "missed",
    "seen.masks": "op_legal=op",
    "choice": "action, forced, op_prob, log_prob, entropy, value",
    "step.outcome": "op_effective=effective_op, outcome, reason, success=executed",
    "step.acted.slots": "stage_acted=stage, blueprint, algorithm, tempo, blend_target",  # of removed seeds too
    "step.ticked.slots": "stage_ticked=stage, age, epochs_in_stage",
    "step.metrics": "train_loss=loss, train_acc=accuracy, train_valid=valid, skipped, host_gradient_norm",
    "step.validation": "val_loss=loss",
    "step": "host_params, params=seed_params",
    "step.measured": "val_acc, committed_acc, host_acc, clean_improvement, measured, exact, acc_table, "
    "contribution, contribution_valid, shapley, interaction_sum, boost_received, interaction_valid, forwards",
    "step.report": "rolled_back, panic, anomaly, snapshot_epoch, snapshot_taken, seeds_pruned, loss_limit=limit, "
    "panic_streak=streak",
    "step.score": "reward, components, network_value, param_cost, potential, potential_by_slot, unmeasured, detectors, "
    "detector_ratio, fossil_params, live_params",
    "after.slots": "stage, alpha, gradient_norm, gradient_health, gradient_ratio, gradient_valid, "
    "gradient_ratio_valid, vanishing, exploding, velocity, velocity_valid, since_measured",
    "after.signals": "stabilized, stable_epochs=stable, final_acc=val_acc, final_committed=committed_acc, "
    "final_loss=val_loss, best_acc",
}
_LEAVES = [(attrgetter(path), name_map(names)) for path, names in _RECORDED.items()]


def build_record(epoch: Epoch) -> TensorDict:
    """Build the record, flat, all leaves [E, ...]."""
    parts = [(part_of(epoch), names) for part_of, names in _LEAVES]
    leaves = {name: getattr(part, leaf) for part, names in parts for name, leaf in names.items()}
    leaves |= _derived_leaves(epoch)
    reals = [leaf.reshape(leaf.shape[0], -1) for leaf in leaves.values() if leaf.is_floating_point()]
    leaves["nonfinite"] = (~torch.cat(reals, dim=-1).isfinite()).sum(-1)
    small = {
        name: leaf.to(_SMALL_DTYPES.get(name, torch.int32)) if leaf.dtype == torch.int64 else leaf
        for name, leaf in leaves.items()
    }
    return unsafe_new(TensorDict, epoch.before, **small)


def _derived_leaves(epoch: Epoch) -> dict[str, Tensor]:
    step, instance = epoch.step, epoch.after.instance
    by_action = step.outcome.target & (step.outcome.gate != 0).unsqueeze(-1)
    gate = torch.where(by_action, step.outcome.gate.unsqueeze(-1), step.ticks.gate)
    failed = torch.where(by_action, step.outcome.gate_failed.unsqueeze(-1), 0)
    return {
        "gate": gate,
        "gate_passed": (gate != 0) & (failed == 0),
        "gate_failed": failed,
        "removal": removal_cause(epoch),
        "legal_choices": head_value_counts(epoch.seen.masks, epoch.choice.action[:, Head.OP]),
        "fault": fault_bits(epoch),
        "instance": torch.stack([getattr(instance, name).float() for name in INSTANCE_PARAMETERS], dim=-1),
    }


def removal_cause(epoch: Epoch) -> Tensor:
    """Cause of a removal in this step, int64 [E, S]."""
    pruned = int(Stage.PRUNED)
    by_action = (epoch.step.acted.slots.stage == pruned) & (epoch.before.slots.stage != pruned)
    by_governor = (epoch.step.governed.slots.stage == pruned) & (epoch.step.ticked.slots.stage != pruned)
    cause = torch.where(by_action, int(Removal.ACTION), epoch.step.ticks.removal)
    return torch.where(by_governor, int(Removal.GOVERNOR), cause)


def fault_bits(epoch: Epoch) -> Tensor:
    """Bit set of the faults of this epoch, int64 [E]."""
    choice = epoch.choice
    rows = (
        (epoch.step.metrics.skipped > 0, Fault.SKIPPED_STEP),
        (epoch.step.metrics.seed_skipped, Fault.SEED_SKIPPED),
        (~epoch.step.validation.loss.isfinite(), Fault.VALIDATION),
        (~epoch.seen.observation.finite, Fault.OBSERVATION),
        (epoch.step.report.rolled_back, Fault.ROLLED_BACK),
        (~(choice.value.isfinite() & choice.log_prob.isfinite().all(-1)), Fault.POLICY),
    )
    hits = torch.stack([where for where, _ in rows], dim=-1)
    return (hits * constant_table(tuple(int(code) for _, code in rows), torch.int64, hits.device)).sum(-1)
