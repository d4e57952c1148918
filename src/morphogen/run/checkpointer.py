"""The keeper: saves a run when it is due, by rounds, by the clock, and at its end, and tells of it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from morphogen.config.groups import STOP
from morphogen.engine.scheduler import Scheduler
from morphogen.errors import CheckpointError
from morphogen.run import snapshot
from morphogen.storage.checkpoint_files import save_checkpoint
from morphogen.storage.checkpoint_store import checkpoint_name, read_manifest
from morphogen.storage.run_directory import RunDirectory
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import CheckpointFailed, CheckpointSaved

SaveKind = Literal["periodic", "final", "stop"]
MINUTE = 60.0


class Checkpointer:
    """The checkpoints of one run that is under way."""

    def __init__(
        self, scheduler: Scheduler, folder: RunDirectory, *, facts: Mapping[str, Any], clock: Callable[[], float]
    ) -> None:
        """`facts`: what every manifest says of the run."""
        self.spec = scheduler.setup.spec.checkpoint
        self._scheduler, self._folder, self._facts, self._clock = scheduler, folder, facts, clock
        self._score: float | None = None  # of the round that came before the position
        self._saved_position: tuple[int, int] | None = None  # the position that was saved last
        self._saved_at = clock()

    @property
    def _position(self) -> tuple[int, int]:
        return self._scheduler.round, self._scheduler.epoch

    def resume(self, manifest: Mapping[str, Any]) -> None:
        """The run goes on from a checkpoint, which is told again: what was told after it is gone."""
        self._score, self._saved_position = manifest["score"], self._position
        self._emit_saved(manifest, None)

    def save_if_due(self) -> None:
        """Between two epochs of a round: save it if it is time."""
        if self._is_due():
            self._scheduler.timer.mark("checkpoint")
            self.save("periodic")

    def end_round(self, summary: BatchSummary) -> None:
        """A round is over: save the run if it is due."""
        self._score = summary.committed_mean
        every = self.spec.every_rounds
        if self._is_due() or (every is not None and self._scheduler.round % every == 0):
            self.save("periodic")

    def _is_due(self) -> bool:
        every = self.spec.every_minutes
        return every is not None and self._clock() - self._saved_at >= MINUTE * every

    def save(self, kind: SaveKind) -> None:
        """Save the run where it stands, unless that was done.

        One that cannot be written is told; where it is periodic and the spec says so, the run goes on.
        """
        if self._position == self._saved_position:
            return
        self._saved_at = self._clock()
        try:
            self._write(kind)
        except CheckpointError as error:
            self._scheduler.reporter.emit(CheckpointFailed(path=self._path, error=str(error)))
            if kind != "periodic" or self.spec.on_failure == STOP:
                raise
        self._saved_at = self._clock()

    def _write(self, kind: SaveKind) -> None:
        started, stands = self._clock(), snapshot.capture(self._scheduler)
        path = save_checkpoint(
            self._folder.checkpoints,
            round=self._position[0],
            epoch=self._position[1],
            envs=stands.envs,
            shared=stands.shared,
            facts={**self._facts, "kind": kind, "score": None if self._scheduler.epoch else self._score},
            keep=self.spec.keep,
        )
        self._saved_position = self._position
        self._emit_saved(read_manifest(path), self._clock() - started)
        self._update_manifest()

    def _emit_saved(self, manifest: Mapping[str, Any], seconds: float | None) -> None:
        size = sum(file["bytes"] for file in manifest["files"].values())
        told = CheckpointSaved(path=self._path, kind=manifest["kind"], size_bytes=size, save_s=seconds)
        self._scheduler.reporter.emit(told)

    def _update_manifest(self) -> None:
        """The manifest of the run names the checkpoint."""
        try:
            self._folder.update(last_checkpoint=self._path)
        except OSError as error:
            raise CheckpointError(f"{self._folder.path} cannot be written: {error.strerror or error}") from error

    @property
    def _path(self) -> str:
        """Where the position is saved, in the directory of the run."""
        return f"{self._folder.checkpoints.name}/{checkpoint_name(*self._position)}"
