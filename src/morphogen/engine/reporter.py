"""The reporter: turns records, as they arrive on the host, into events, and rounds into summaries.

What the next epoch needs is worked out at once; events of an epoch are made by the thread that writes them.

It reads copies only: nothing in a run depends on it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from morphogen.engine.setup import Setup
from morphogen.storage.codec import Tree, packed
from morphogen.telemetry.batch import Moment
from morphogen.telemetry.derive import details, events
from morphogen.telemetry.dispatch import AnySink, Dispatch, Losses
from morphogen.telemetry.episode_events import episodes
from morphogen.telemetry.events import Envelope, Event, RoundEvent
from morphogen.telemetry.kinds.env import EpisodeCompleted
from morphogen.telemetry.kinds.ppo import ppo_updated
from morphogen.telemetry.kinds.round import BatchSummary, BlueprintScores
from morphogen.telemetry.names import Record
from morphogen.telemetry.record_memory import Facts, Memory, remember
from morphogen.telemetry.round_events import Scale, round_events, scale
from morphogen.telemetry.round_summary import Costs, paces, summarise
from morphogen.telemetry.scores import Tally, added, scoreboard, tallies
from morphogen.telemetry.telemetry_state import State, state_of
from morphogen.telemetry.watcher import Watcher


def build_facts(setup: Setup) -> Facts:
    """What is fixed for a run and needed to tell what happened."""
    spec, host = setup.spec, setup.net.host
    return Facts(
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
    """What became of the seeds so far, worked out by whoever asks first: mostly the thread that writes it."""

    def __init__(self, before: Mapping[str, Tally], pending: Sequence[Moment] = ()) -> None:
        self._tallies, self._pending, self._lock = before, tuple(pending), threading.Lock()

    def tallies(self) -> Mapping[str, Tally]:
        """By blueprint."""
        for moment in self._pending:
            _ = moment.events  # made before the lock is taken: whoever makes events may come here and wait for it
        with self._lock:
            events = (event for moment in self._pending for event in moment.events)
            self._tallies, self._pending = reduce(added, map(tallies, events), self._tallies), ()
            return self._tallies


class Reporter:
    """Events and summaries of one run."""

    def __init__(self, setup: Setup, sinks: Sequence[AnySink]) -> None:
        self._facts, telemetry = build_facts(setup), setup.spec.telemetry
        self._dispatch = Dispatch(sinks, telemetry, epochs=self._facts.epochs)
        self._watcher = Watcher(self._facts, telemetry, rounds=setup.spec.rounds)
        self._memory: Memory | None = None
        self._episodes: tuple[EpisodeCompleted, ...] = ()
        self._rolling: tuple[float, ...] = ()
        self._first_scale: Scale | None = None
        self._host = setup.net.host
        self._seeds, self._pending = SeedTallies({}), list[Moment]()  # of earlier rounds; of this one

    def add_sinks(self, sinks: Sequence[AnySink]) -> None:
        """What is told from here on goes to these sinks too."""
        self._dispatch.add(sinks)

    def emit(self, *events: Event, round: int | None = None) -> None:
        """Events that are about the run or a round."""
        self._dispatch.tell([Envelope(one, round=round) for one in events])

    def add_record(self, record: Record, position: tuple[int, int]) -> None:
        """The record of the epoch at (round, epoch)."""
        known = self._facts
        memories = remember(record, self._memory, position, known)
        after = memories[1]
        if position[1] == known.epochs - 1:
            self._episodes = tuple(data for _, data in episodes(record, after, known))
        signs, report = self._watcher.epoch(record, position)
        moment = Moment(
            lambda: (*events(record, memories, position, known), *signs),
            lambda: details(record, after, position, known),
        )
        self._dispatch.epoch(moment, report)
        if self._dispatch.heard:
            self._pending.append(moment)
        self._memory = after

    def end_round(
        self,
        round: int,
        metrics: Mapping[str, Any],
        costs: Costs,
    ) -> BatchSummary:
        """The summary of a round whose records were all taken; metrics: what the `update` fence brought."""
        trained = "steps_done" in metrics
        update = (ppo_updated(metrics, update_s=costs.update_s),) if trained else ()
        before = self._rolling
        rollbacks = sum(one.rollbacks for one in self._episodes)
        kinds, signs, report = self._watcher.round(round, metrics, rollbacks, costs.memory)
        summary, self._rolling = summarise(
            self._episodes,
            before,
            round=round,
            updated=trained and bool(metrics["steps_done"] > 0),
            costs=costs,
            anomalies=kinds,
        )
        pace = paces(costs, samples=self._facts.samples)
        found = (*update, summary, *self._round_details(metrics), *pace, *self._watcher.direction(summary, before))
        told = [*(Envelope(one, round=round) for one in found), *signs]
        self._dispatch.tell(told, self._scores_event(round))
        self._dispatch.judge(report)
        return summary

    def _scores_event(self, round: int) -> Callable[[], Envelope]:
        """What says how the blueprints stand.  Where all sinks were given up, this is where it is worked out."""
        seeds = SeedTallies(self._seeds.tallies(), self._pending)
        self._seeds, self._pending = seeds, []
        return lambda: Envelope(BlueprintScores(scoreboard(seeds.tallies(), self._host)), round=round)

    def _round_details(self, metrics: Mapping[str, Any]) -> tuple[RoundEvent, ...]:
        """What the round looked like.  A round without an epoch was refused before."""
        if self._memory is None:
            return ()
        self._first_scale = self._first_scale or scale(metrics)
        return tuple(round_events(self._memory.tally, metrics, self._first_scale, self._facts))

    def state(self) -> Tree:
        """All that is remembered between two epochs, as checkpoints hold it.  Changes nothing."""
        seeds = SeedTallies(self._seeds.tallies(), self._pending).tallies()
        own = (self._memory, self._rolling, self._first_scale, seeds)
        return packed(State(*own, self._watcher.seen, self._dispatch.state()))

    def restore(self, tree: Tree) -> None:
        """Go on from what a reporter of the same run remembered; a CheckpointError by name where it does not fit."""
        found = state_of(tree, self._facts, "telemetry")
        self._memory, self._rolling, self._first_scale = found.memory, found.rolling, found.first
        self._seeds, self._pending, self._watcher.seen = SeedTallies(found.seeds), [], found.seen
        self._dispatch.restore(found.raised, "telemetry.raised")

    def drain(self) -> Tree:
        """Have all that was told written; where the sinks stand, as `outlets.opened` takes it.  Waits for files."""
        return packed(self._dispatch.drain())

    def close(self, *final_events: Event) -> Losses:
        """Tell the last event, wait until everything is written or given up, and say what was lost."""
        return self._dispatch.close(*final_events)
