"""The reporter: turns records, as they arrive on the host, into events, and rounds into summaries.

What the next epoch needs is worked out at once; events of an epoch are made by the thread that writes them.

It reads copies only: nothing in a run depends on it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from morphogen.engine.setup import Setup
from morphogen.storage.codec import Tree, pack
from morphogen.telemetry.batch import PendingEvents
from morphogen.telemetry.derive import derive_details, derive_events
from morphogen.telemetry.dispatch import AnySink, Dispatcher, Losses
from morphogen.telemetry.episode_events import completed_episodes
from morphogen.telemetry.event_tally import Record
from morphogen.telemetry.events import Envelope, Event, RoundEvent
from morphogen.telemetry.kinds.env import EpisodeCompleted
from morphogen.telemetry.kinds.ppo import ppo_event
from morphogen.telemetry.kinds.round import BatchSummary, BlueprintScores
from morphogen.telemetry.record_memory import EpisodeMemory, RunFacts, update_memory
from morphogen.telemetry.round_events import Scale, normaliser_scale, round_events
from morphogen.telemetry.round_summary import RoundCosts, summarise, throughput_events
from morphogen.telemetry.scores import BlueprintTally, add_tallies, event_tallies, scoreboard
from morphogen.telemetry.telemetry_state import TelemetryState, unpack_state
from morphogen.telemetry.watcher import AnomalyMonitor


def build_facts(setup: Setup) -> RunFacts:
    """Constants of a run that events need."""
    spec, host = setup.spec, setup.net.host
    return RunFacts(
        task=spec.task,
        slots=setup.net.names,
        components=setup.rule.components,
        epochs=spec.episode_length,
        success_accuracy=setup.task.success,
        gamma=spec.ppo.gamma,
        envs=spec.envs,
        samples=spec.data.minibatches * spec.data.batch,
        host={"base": host.base, "blocks": host.blocks, "kernel": host.kernel, "pools": host.pools, "norm": host.norm},
    )


class SeedTallies:
    """Tallies of seeds so far, computed on first use: mostly in the thread that writes them."""

    def __init__(self, before: Mapping[str, BlueprintTally], pending: Sequence[PendingEvents] = ()) -> None:
        self._tallies, self._pending, self._lock = before, tuple(pending), threading.Lock()

    def tallies(self) -> Mapping[str, BlueprintTally]:
        """By blueprint."""
        for moment in self._pending:
            _ = moment.events  # made before the lock is taken: whoever makes events may come here and wait for it
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
        self._host = setup.net.host
        self._seeds, self._pending = SeedTallies({}), list[PendingEvents]()  # of earlier rounds; of this one

    def add_sinks(self, sinks: Sequence[AnySink]) -> None:
        """Add sinks, which receive all later events."""
        self._dispatch.add_sinks(sinks)

    def emit(self, *events: Event, round: int | None = None) -> None:
        """Events that are about the run or a round."""
        self._dispatch.emit([Envelope(one, round=round) for one in events])

    def add_record(self, record: Record, position: tuple[int, int]) -> None:
        """The record of the epoch at (round, epoch)."""
        known = self._facts
        memories = update_memory(record, self._memory, position, known)
        after = memories[1]
        if position[1] == known.epochs - 1:
            self._episodes = tuple(data for _, data in completed_episodes(record, after, known))
        signs, report = self._watcher.end_epoch(record, position)
        moment = PendingEvents(
            lambda: (*derive_events(record, memories, position, known), *signs),
            lambda: derive_details(record, after, position, known),
        )
        self._dispatch.emit_epoch(moment, report)
        if self._dispatch.has_sinks:
            self._pending.append(moment)
        self._memory = after

    def end_round(
        self,
        round: int,
        metrics: Mapping[str, Any],
        costs: RoundCosts,
    ) -> BatchSummary:
        """The summary of a round whose records were all taken; metrics: what the `update` fence brought."""
        trained = "steps_done" in metrics
        update = (ppo_event(metrics, update_s=costs.update_s),) if trained else ()
        before = self._rolling
        rollbacks = sum(one.rollbacks for one in self._episodes)
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
        found = (*update, summary, *self._round_details(metrics), *pace, *self._watcher.trend_events(summary, before))
        told = [*(Envelope(one, round=round) for one in found), *signs]
        self._dispatch.emit(told, self._scores_event(round))
        self._dispatch.update_level(report)
        return summary

    def _scores_event(self, round: int) -> Callable[[], Envelope]:
        """Scores of the blueprints.  Without a sink they are computed here."""
        seeds = SeedTallies(self._seeds.tallies(), self._pending)
        self._seeds, self._pending = seeds, []
        return lambda: Envelope(BlueprintScores(scoreboard(seeds.tallies(), self._host)), round=round)

    def _round_details(self, metrics: Mapping[str, Any]) -> tuple[RoundEvent, ...]:
        """Diagnostics of the round.  A round without an epoch was refused before."""
        if self._memory is None:
            return ()
        self._first_scale = self._first_scale or normaliser_scale(metrics)
        return tuple(round_events(self._memory.tally, metrics, self._first_scale, self._facts))

    def state(self) -> Tree:
        """All that is remembered between two epochs, as checkpoints hold it.  Changes nothing."""
        seeds = SeedTallies(self._seeds.tallies(), self._pending).tallies()
        own = (self._memory, self._rolling, self._first_scale, seeds)
        return pack(TelemetryState(*own, self._watcher.state, self._dispatch.state()))

    def restore(self, tree: Tree) -> None:
        """Go on from what a reporter of the same run remembered; a CheckpointError by name where it does not fit."""
        found = unpack_state(tree, self._facts, "telemetry")
        self._memory, self._rolling, self._first_scale = found.memory, found.rolling, found.first
        self._seeds, self._pending, self._watcher.state = SeedTallies(found.seeds), [], found.seen
        self._dispatch.restore(found.raised, "telemetry.raised")

    def drain(self) -> Tree:
        """Have all that was told written; where the sinks stand, as `outlets.opened` takes it.  Waits for files."""
        return pack(self._dispatch.drain())

    def close(self, *final_events: Event) -> Losses:
        """Tell the last event, wait until everything is written or given up, and say what was lost."""
        return self._dispatch.close(*final_events)
