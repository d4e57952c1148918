"""A session: one run under way in this process, from its first event to its last, with the files that it owns."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tensordict import TensorDict

from morphogen.analysis.run_log import read_rounds
from morphogen.config.config_files import dump_config
from morphogen.config.spec import VALIDATION
from morphogen.engine.optimum import SHARE_TITLE
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import Setup
from morphogen.engine.sizes import describe_run
from morphogen.errors import CheckpointError, TrainingDiverged
from morphogen.evaluation.final_evaluation import run_final_evaluation, share_table, shares_of_optimum
from morphogen.evaluation.play import ArmResult
from morphogen.run import manifest, snapshot
from morphogen.run.checkpointer import Checkpointer, SaveKind
from morphogen.run.resume import ResumePoint, describe_reproducibility, remove_newer
from morphogen.run.sink_checks import METRICS_FOLDER
from morphogen.run.sinks import open_sinks
from morphogen.storage import checkpoint_files, run_directory
from morphogen.storage.run_directory import RunDirectory
from morphogen.storage.tensor_trees import Tree
from morphogen.telemetry.dispatch import NO_LOSSES, Losses
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, RunResumed

OnRound = Callable[[BatchSummary, Scheduler], bool | None]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run leaves in memory."""

    history: tuple[BatchSummary, ...]  # of a run that was resumed as far as its event file tells of it
    policy: TensorDict  # parameters of the policy
    results: tuple[ArmResult, ...]  # on held-out instances: the baselines, then the policy of the run
    run_dir: Path | None
    losses: Losses = NO_LOSSES  # what did not reach the event file or another sink
    stopped: bool = False  # before its last round was over


class RunContext(NamedTuple):
    """The directory that a run owns, its manifest, and the checkpoint that it goes on from; None: it begins."""

    folder: RunDirectory
    manifest: Tree
    resume_point: ResumePoint | None = None


class Session:
    """One run with its files."""

    def __init__(self, setup: Setup, parts: Parts, context: RunContext | None, *, console: Any) -> None:
        """What is resumed is checked whole before anything is written."""
        self.setup, self.context, self.console = setup, context, console
        self.clock, self.started_at, self.halt = parts.clock, parts.clock(), parts.halt
        screen = () if console is None else (console,)
        parts = replace(parts, sinks=(*parts.sinks, *screen), on_epoch=parts.on_epoch or self._on_epoch)
        self.scheduler = Scheduler(setup, parts)
        self.history: list[BatchSummary] = []
        self.losses, self.checkpointer = NO_LOSSES, None
        if context is not None:
            self.checkpointer = Checkpointer(
                self.scheduler, context.folder, facts=self._checkpoint_facts(context), clock=self.clock
            )
            self._start(context) if context.resume_point is None else self._resume(context, context.resume_point)

    def _checkpoint_facts(self, context: RunContext) -> Tree:
        """What every checkpoint says of the run."""
        config = dump_config(self.setup.spec)
        return {
            "run_id": context.manifest["run_id"],
            "config": json.loads(config),
            "config_sha256": run_directory.config_hash(config),
            "data_sha256": self.setup.dataset.fingerprint,
            "world": 1,
            "made": manifest.environment_fingerprint(self.setup),
        }

    def _start(self, context: RunContext) -> None:
        """Begin; what is left of a run that was never saved is gone."""
        shutil.rmtree(context.folder.path / METRICS_FOLDER, ignore_errors=True)
        self._open_files(context, None)
        self.scheduler.reporter.emit(manifest.run_started_event(self.scheduler, context.manifest))

    def _open_files(self, context: RunContext, sink_positions: Tree | None) -> int:
        """Open the files of the run where they stood; how many bytes of the event file were cut."""
        sinks, cut = open_sinks(self.setup.spec, context.folder, sink_positions)
        config = dump_config(self.setup.spec)
        try:
            context.folder.write_config(config)
            context.folder.update(status="running", config_sha256=run_directory.config_hash(config))
        except OSError as cause:
            raise CheckpointError(self._write_error(cause)) from cause
        self.scheduler.reporter.add_sinks(sinks)
        return cut

    def _resume(self, context: RunContext, resume_point: ResumePoint) -> None:
        """Go on where the checkpoint stands; what was written after it is gone, and made again."""
        snapshot.restore(self.scheduler, resume_point.snapshot, *resume_point.position)
        cut = self._open_files(context, resume_point.snapshot.sink_positions)
        remove_newer(context.folder, resume_point)
        self.history += read_rounds(context.folder.path)
        if resume_point.snapshot.sink_positions is None:  # nothing was told before
            self.scheduler.reporter.emit(manifest.run_started_event(self.scheduler, context.manifest))
        assert self.checkpointer is not None
        self.checkpointer.resume(resume_point.manifest)
        told = RunResumed(checkpoint=resume_point.path.name, cut_bytes=cut, skipped=resume_point.skipped)
        self.scheduler.reporter.emit(told)

    def run(self, on_round: OnRound | None) -> TrainResult:
        """From the first event to the last; the files say how it ended, however it does."""
        status, error = "failed", None
        try:
            result = self._train(on_round)
            status = "stopped" if result.stopped else run_directory.STATUS_COMPLETED
        except OSError as cause:
            error = self._write_error(cause)
            raise CheckpointError(error) from cause
        except BaseException as cause:
            stopped = isinstance(cause, KeyboardInterrupt | SystemExit)
            status, error = ("stopped", None) if stopped else ("failed", f"{type(cause).__name__}: {cause}")
            raise
        finally:
            self._close_files(status, error)
        if self.console is not None:
            self.console.finish(result)
        return replace(result, losses=self.losses)

    def _train(self, on_round: OnRound | None) -> TrainResult:
        scheduler, spec = self.scheduler, self.setup.spec
        self._print_start()
        try:
            scheduler.run(lambda summary: self._on_round(summary, on_round), halt=self._between_epochs)
        except TrainingDiverged:
            self._save("stop")
            raise
        stopped = scheduler.round < spec.rounds
        self._save("stop" if stopped else "final")
        results = None if stopped else self._evaluate()
        told = tuple(self.history), scheduler.params, results or (), self._path
        return TrainResult(*told, stopped=results is None)

    @property
    def _path(self) -> Path | None:
        return None if self.context is None else self.context.folder.path

    def _print_start(self) -> None:
        """Say what is going to run."""
        if self.console is None:
            return
        found, done = None if self.context is None else self.context.resume_point, self._progress(self.scheduler.epoch)
        self.console.start(self.setup.spec, {**describe_run(self.setup), **self._resume_row(found)}, done=done)
        if found is not None:
            self.console.warn(f"skipped {one['checkpoint']}: {one['reason']}" for one in found.skipped)

    def _resume_row(self, found: ResumePoint | None) -> dict[str, str]:
        if found is None:
            return {}
        made = describe_reproducibility(found.manifest["made"], manifest.environment_fingerprint(self.setup))
        return {"goes on from": f"{found.path.name}, {made}"}

    def _progress(self, epoch: int) -> float:
        """The share of the run that is over before an epoch of the present round."""
        spec = self.setup.spec
        return (self.scheduler.round * spec.episode_length + epoch) / (spec.rounds * spec.episode_length)

    def _on_epoch(self, round: int, epoch: int) -> None:
        if self.console is not None:
            self.console.end_epoch(round, epoch, self._progress(epoch + 1))

    def _between_epochs(self) -> bool:
        """Between two epochs: whether to stop; if not, the run is saved where it is time."""
        if self.halt():
            return True
        if self.checkpointer is not None:
            self.checkpointer.save_if_due()
        return False

    def _on_round(self, summary: BatchSummary, callback: OnRound | None) -> bool | None:
        self.history.append(summary)
        if self.console is not None:
            self.console.end_round(summary)
        if self.checkpointer is not None:
            self.checkpointer.end_round(summary)
        on = callback(summary, self.scheduler) if callback is not None else None
        return False if self.halt() else on

    def _save(self, kind: SaveKind) -> None:
        if self.checkpointer is not None:
            self.checkpointer.save(kind)

    def _evaluate(self) -> tuple[ArmResult, ...] | None:
        """All rounds are over: keep the policy, and judge it; None where that was stopped."""
        scheduler, spec = self.scheduler, self.setup.spec
        if self.context is not None:
            self._save_policy(self.context.folder)
        results = run_final_evaluation(scheduler, self.halt)
        if not results:
            return results
        scheduler.reporter.emit(results[-1].to_event(split=VALIDATION, seed=spec.seed))
        reached = shares_of_optimum(self.setup, scheduler.transfers, results)
        if self.context is not None:
            found = {result.policy: result.per_episode() for result in results}
            said = {"split": VALIDATION, "episodes": spec.final_episodes, "policies": found}
            self.context.folder.write_result({**said, **({"share_of_optimal": reached} if reached else {})})
        if self.console is not None:
            rows = [result.table_row(results[-1], seed=spec.seed) for result in results]
            self.console.print_table(rows, title=f"{spec.final_episodes} held-out instances, the same for every policy")
            self.console.print_table(share_table(reached), title=SHARE_TITLE)
        return results

    def _save_policy(self, folder: RunDirectory) -> None:
        params, config = self.scheduler.transfers.fetch_state(self.scheduler.params), dump_config(self.setup.spec)
        checkpoint_files.save_policy(
            folder.policy,
            params=params.select("net", "value_offset", strict=False),
            normalisers=params.select("observation", strict=False),
            config=config,
            facts={
                "config_sha256": run_directory.config_hash(config),
                "data_sha256": self.setup.dataset.fingerprint,
                "policy": self.setup.spec.policy_name,
            },
        )

    def _write_error(self, cause: OSError) -> str:
        return f"{self._path} cannot be written: {cause.strerror or cause}"

    def _close_files(self, status: str, error: str | None) -> None:
        """Close the files of the run; where it failed already, that is what is told, whatever happens here."""
        try:
            self._emit_completed(status, error)
        except OSError as cause:
            if status != "failed":
                raise CheckpointError(self._write_error(cause)) from cause

    def _emit_completed(self, status: str, error: str | None) -> None:
        """The last event; the manifest says how the run ended."""
        done = self.scheduler.compiled.totals
        best = max(self.history, key=lambda summary: summary.committed_mean, default=None)
        self.losses = self.scheduler.reporter.close(
            RunCompleted(
                status=status,
                rounds_done=self.scheduler.round,
                best_round=None if best is None else best.round,
                best_accuracy=None if best is None else best.committed_mean,
                error=error,
                run_s=self.clock() - self.started_at,
                graphs=done.graphs,
                graph_fallbacks=done.graph_fallbacks,
            )
        )
        if self.context is not None:
            self.context.folder.update(status=status)
