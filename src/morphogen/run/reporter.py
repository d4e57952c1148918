"""The reporter: turns records, as they arrive on the host, into events, and rounds into summaries.

It reads copies only: nothing in a run depends on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from morphogen.run.setup import Setup
from morphogen.run.telemetry.derive import events
from morphogen.run.telemetry.events import Envelope, Event, RoundEvent
from morphogen.run.telemetry.kinds.env import EpisodeCompleted
from morphogen.run.telemetry.kinds.ppo import ppo_updated
from morphogen.run.telemetry.kinds.round import BatchSummary
from morphogen.run.telemetry.memory import Facts, Memory
from morphogen.run.telemetry.names import Record
from morphogen.run.telemetry.rounds import Scale, round_events, scale
from morphogen.run.telemetry.summary import Costs, completed, paces, summarise
from morphogen.run.telemetry.writer import Sink


def facts(setup: Setup) -> Facts:
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


class Reporter:
    """Events and summaries of one run."""

    def __init__(self, setup: Setup, sinks: Sequence[Sink]) -> None:
        self._facts, self._sinks = facts(setup), tuple(sinks)
        self._memory: Memory | None = None
        self._episodes: tuple[EpisodeCompleted, ...] = ()
        self._rolling: tuple[float, ...] = ()
        self._first: Scale | None = None

    def tell(self, *data: Event, round: int | None = None) -> None:
        """Events that are about the run or a round."""
        self._write([Envelope(one, round=round) for one in data])

    def take(self, record: Record, position: tuple[int, int]) -> None:
        """The record of the epoch at (round, epoch)."""
        found, self._memory = events(record, self._memory, position, self._facts)
        self._episodes = self._episodes + completed(found)
        self._write(found)

    def end_round(
        self,
        round: int,
        metrics: Mapping[str, Any],
        costs: Costs,
    ) -> BatchSummary:
        """The summary of a round whose records were all taken; metrics: what the `update` fence brought."""
        trained = "steps_done" in metrics
        update = (ppo_updated(metrics, update_s=costs.update_s),) if trained else ()
        env_epochs = self._facts.envs * self._facts.epochs
        summary, self._rolling = summarise(
            self._episodes,
            self._rolling,
            round=round,
            updated=trained and bool(metrics["steps_done"] > 0),
            costs=costs,
            env_epochs=env_epochs,
        )
        pace = paces(costs, env_epochs=env_epochs, samples=self._facts.samples)
        self.tell(*update, summary, *self._looks(metrics), *pace, round=round)
        self._episodes = ()
        return summary

    def _looks(self, metrics: Mapping[str, Any]) -> tuple[RoundEvent, ...]:
        """What the round looked like.  A round without an epoch was refused before."""
        if self._memory is None:
            return ()
        self._first = self._first or scale(metrics)
        return tuple(round_events(self._memory.tally, metrics, self._first, self._facts))

    def _write(self, found: Sequence[Envelope]) -> None:
        for sink in self._sinks:
            sink.write(found)
