"""Schedule of checkpoints: saved by rounds, by minutes and at the end of a run, each with an
event.
"""

from collections.abc import Mapping
from typing import Any, Literal

from morphogen.config.execution_spec import STOP
from morphogen.errors import CheckpointError
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import CheckpointFailed, CheckpointSaved
from morphogen.log.run_directory import CHECKPOINTS, RunDirectory
from morphogen.train.checkpoint import capture
from morphogen.train.checkpoint_store import checkpoint_name, read_manifest
from morphogen.train.loop import Scheduler

SaveKind = Literal["periodic", "final", "stop"]
MINUTE = 60.0


class Checkpointer:
    """Checkpoints of the run in this process, in its directory; None: nothing is saved.

    facts: entries of the manifests of all checkpoints.
    """

    def __init__(
        self, scheduler: Scheduler, folder: RunDirectory | None, facts: Mapping[str, Any]
    ) -> None:
        self.spec = scheduler.setup.spec.checkpoint
        self._scheduler = scheduler
        self._folder = folder
        self._facts = facts
        self._clock = scheduler.parts.clock
        self._score: float | None = None  # of the last finished round
        self._saved_position: tuple[int, int] | None = None  # None: nothing saved yet
        self._saved_at = self._clock()

    @property
    def _position(self) -> tuple[int, int]:
        return self._scheduler.round, self._scheduler.epoch

    def resume(self, manifest: Mapping[str, Any]) -> None:
        """Continue after loading a checkpoint; its event is emitted again, since the event file was
        cut before it.
        """
        self._score = manifest["score"]
        self._emit_saved(manifest, None)

    def end_round(self, summary: BatchSummary) -> None:
        """Save after a round if it is due by rounds."""
        self._score = summary.committed_mean
        every = self.spec.every_rounds
        if every is not None and self._scheduler.round % every == 0:
            self.save("periodic")

    def is_due(self) -> bool:
        """Return whether the time between two checkpoints has passed."""
        every = None if self._folder is None else self.spec.every_minutes
        return every is not None and self._clock() - self._saved_at >= MINUTE * every

    def save(self, kind: SaveKind) -> None:
        """Save the run at its position, unless this position is saved already.

        A failure is an event; a periodic checkpoint that fails raises only if
        `checkpoint.on_failure` is stop.
        """
        folder = self._folder
        if folder is None or self._position == self._saved_position:
            return
        exchange = self._scheduler.exchange
        started = self._clock()
        try:
            exchange.together(folder.check_present)
            score = None if self._scheduler.epoch else self._score
            checkpoint = capture(
                self._scheduler, {**self._facts, "kind": kind, "score": score}
            ).map_envs(exchange.join_envs)
            manifest = exchange.on_first(
                lambda: read_manifest(checkpoint.save(folder.checkpoints, keep=self.spec.keep))
            )
            self._emit_saved(manifest, self._clock() - started)
            exchange.on_first(lambda: folder.update(last_checkpoint=self._path))
        except CheckpointError as error:
            self._scheduler.reporter.emit(CheckpointFailed(path=self._path, error=str(error)))
            if kind != "periodic" or self.spec.on_failure == STOP:
                raise
        self._saved_at = self._clock()

    def _emit_saved(self, manifest: Mapping[str, Any], seconds: float | None) -> None:
        self._saved_position = self._position
        event = CheckpointSaved(
            path=self._path, kind=manifest["kind"], size_bytes=manifest["bytes"], save_s=seconds
        )
        self._scheduler.reporter.emit(event)

    @property
    def _path(self) -> str:
        return f"{CHECKPOINTS}/{checkpoint_name(*self._position)}"
