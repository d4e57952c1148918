"""Session: one run in this process, from its first event to its last, with its files."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from tensordict import TensorDict

from morphogen.config import files
from morphogen.config.config_files import dump_config
from morphogen.config.spec import VALIDATION
from morphogen.env.policies import Arm
from morphogen.env.setup import Setup, describe_run
from morphogen.errors import CheckpointError, TrainingDiverged
from morphogen.evaluation.play import SHARE_TITLE, ArmResult, share_table, shares_of_optimum
from morphogen.log import run_directory
from morphogen.log.console import Console
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import NetworksFailed, RunCompleted, RunResumed, RunStarted
from morphogen.log.run_directory import RunDirectory
from morphogen.log.run_log import read_rounds
from morphogen.log.writer import Losses
from morphogen.policy import policy_files
from morphogen.train import manifest
from morphogen.train.checkpoint import restore
from morphogen.train.checkpointer import Checkpointer
from morphogen.train.held_out_plays import (
    open_keepers,
    play_curve,
    plays_greedily,
    run_final_evaluation,
)
from morphogen.train.loop import Hooks, Parts, Scheduler
from morphogen.train.resume import ResumePoint, describe_reproducibility, remove_newer
from morphogen.train.sinks import open_sinks
from morphogen.vocab.paths import POLICY_FILE
from morphogen.vocab.text import count_noun

Status = Literal["completed", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Results of a run in memory: a summary per round, the policy, and how it did on held-out
    instances.

    Example:
        >>> import morphogen as mg
        >>> fields = {
        ...     "preset": "tiny",
        ...     "rounds": 1,
        ...     "envs": 4,
        ...     "policy_name": "random",
        ...     "episode_length": 2,
        ... }
        >>> result = mg.train_ppo_vectorized(**fields, final_episodes=2)
        >>> [arm.policy for arm in result.results], len(result.history), result.stopped
        (['wait', 'heuristic', 'random'], 1, False)
        >>> mg.play(mg.make("tiny", envs=2, seed=0), result.arm).policy
        'random'
    """

    history: tuple[BatchSummary, ...]
    """Of a resumed run, as far as its event file goes back."""
    arm: Arm
    """The policy, to play (`mg.play`)."""
    results: tuple[ArmResult, ...]
    """On held-out instances: the baselines, then the policy of the run."""
    run_dir: Path | None
    losses: Losses = field(default_factory=Losses)
    """Losses of the event file and of other sinks."""
    stopped: bool = False
    """Before its last round was over."""

    @property
    def policy(self) -> TensorDict:
        """Parameters of the policy, without batch size."""
        return self.arm.params

    def __repr__(self) -> str:
        last = f", value {self.history[-1].network_value_mean:.3f}" if self.history else ""
        policies = ", ".join(result.policy for result in self.results)
        return (
            f"TrainResult({len(self.history)} rounds{last}; evaluated: {policies or 'nothing'}; "
            f"{self.run_dir})"
        )


class Session:
    """One run with its files.

    Args:
        setup, parts: of its scheduler.
        console: shows progress and tables; None: nothing is printed.
        folder: directory of the run, with its manifest; None: nothing is written.
        point: checkpoint to resume from; None: a new run.
    """

    def __init__(
        self,
        setup: Setup,
        parts: Parts,
        console: Console | None,
        folder: RunDirectory | None = None,
        point: ResumePoint | None = None,
    ) -> None:
        """Start or resume; a checkpoint is checked completely before anything is written."""
        self.setup = setup
        self.point = point
        self.folder = folder
        self.console = console if setup.exchange.first else None
        self.clock, self.started_at, self.hooks = parts.clock, parts.clock(), parts.hooks
        screen = () if self.console is None else (self.console,)
        hooks = Hooks(
            on_epoch=self.hooks.on_epoch or self._on_epoch,
            on_round=self._on_round,
            should_stop=self._should_stop,
            should_save=lambda: self.checkpointer.is_due(),
            save=lambda: self.checkpointer.save("periodic"),
        )
        parts = replace(parts, sinks=(*parts.sinks, *screen), hooks=hooks)
        self.scheduler = Scheduler(setup, parts)
        self.history: list[BatchSummary] = []
        self._config = dump_config(setup.spec)
        self._hashes = {
            "config_sha256": run_directory.config_hash(self._config),
            "data_sha256": setup.dataset.fingerprint,
        }
        self._together = setup.exchange.together  # an error of one process is raised in all
        if folder is None:
            self.checkpointer = Checkpointer(self.scheduler, None, {})
            return
        devices = setup.exchange.facts(str(setup.device))
        description = folder.read_manifest()
        facts = {
            "run_id": description["run_id"],
            "config": json.loads(self._config),
            **self._hashes,
            "devices": devices,
            "made": manifest.environment_fingerprint(setup),
        }
        self.checkpointer = Checkpointer(self.scheduler, folder, facts)
        started = manifest.run_started_event(self.scheduler, description, devices)
        self._together(lambda: self._open_files(folder, started))

    def _open_files(self, folder: RunDirectory, started: RunStarted) -> None:
        """Restore the checkpoint, if any, and open the files at its position.

        Everything written after the checkpoint is deleted, since the run computes it again.
        """
        scheduler = self.scheduler
        point = self.point
        position = None
        if point is not None:
            restore(scheduler, point.checkpoint)
            position = point.checkpoint.log
        sinks, cut = open_sinks(self.setup.spec, folder, position)
        folder.write(run_directory.CONFIG, self._config.encode)
        folder.update(status="running", config_sha256=self._hashes["config_sha256"])
        if point is not None:
            remove_newer(folder, point)
        scheduler.reporter.writer.add_sinks(sinks)
        if position is None:  # no event was emitted before
            scheduler.reporter.emit(started)
        if point is not None:
            self.history += read_rounds(folder.path)
            self.checkpointer.resume(point.checkpoint.manifest)
            scheduler.reporter.emit(
                RunResumed(
                    checkpoint=point.path.name,
                    cut_bytes=cut,
                    skipped=tuple(point.skipped),
                    rounds=self.setup.spec.rounds,
                )
            )

    def run(self) -> TrainResult:
        """Run from the first event to the last; the files record the status in any case."""
        try:
            result = self._train()
        except BaseException as cause:
            stopped = isinstance(cause, KeyboardInterrupt | SystemExit)
            status, error = (
                ("stopped", None) if stopped else ("failed", f"{type(cause).__name__}: {cause}")
            )
            try:
                self._close_files(status, error)
            except CheckpointError:
                if status != "failed":  # otherwise the error that ended the run would be hidden
                    raise
            raise
        ended: Status = "stopped" if result.stopped else run_directory.STATUS_COMPLETED
        losses = self._together(lambda: self._close_files(ended, None))
        result = replace(result, losses=losses)
        if self.console is not None:
            self.console.finish(result)
        return result

    def _train(self) -> TrainResult:
        scheduler = self.scheduler
        self._print_start()
        try:
            if (scheduler.round, scheduler.epoch) == (0, 0):
                self._extend_curve()
            scheduler.run()
        except TrainingDiverged:
            self.checkpointer.save("stop")
            raise
        stopped = scheduler.round < self.setup.spec.rounds
        self.checkpointer.save("stop" if stopped else "final")
        results = None if stopped else self._evaluate()
        path = None if self.folder is None else self.folder.path
        return TrainResult(
            tuple(self.history), scheduler.arm, results or (), path, stopped=results is None
        )

    def _print_start(self) -> None:
        """Print the settings of the run, and for a resumed run its checkpoint and the promise for
        the rest.
        """
        if self.console is None:
            return
        facts = {**describe_run(self.setup), **self.setup.exchange.describe(self.setup.spec)}
        skipped = ()
        if self.point is not None:
            promise = describe_reproducibility(
                self.point.checkpoint.manifest["made"],
                manifest.environment_fingerprint(self.setup),
            )
            facts = {**facts, "resumed from": f"{self.point.path.name}, {promise}"}
            skipped = self.point.skipped
        self.console.start(self.setup.spec, facts, done=self._progress(self.scheduler.epoch))
        self.console.warn(f"skipped {row['checkpoint']}: {row['reason']}" for row in skipped)

    def _progress(self, epoch: int) -> float:
        """Return the finished share of the run before an epoch of the current round."""
        spec = self.setup.spec
        return (self.scheduler.round * spec.episode_length + epoch) / (
            spec.rounds * spec.episode_length
        )

    def _on_epoch(self, round: int, epoch: int) -> None:
        if self.console is not None:
            self.console.end_epoch(
                round, epoch, self._progress(epoch + 1), self.scheduler.reporter.accuracy
            )

    def _should_stop(self) -> object:
        """Return whether to stop between two epochs."""
        if self.folder is not None:
            # because nothing of the run could be saved
            self.folder.check_present()
        return self.hooks.should_stop()

    def _on_round(self, summary: BatchSummary, scheduler: Scheduler) -> bool | None:
        self.history.append(summary)
        if self.console is not None:
            self.console.end_round(summary)
        self._extend_curve()
        self.checkpointer.end_round(summary)
        return None if self.hooks.on_round is None else self.hooks.on_round(summary, scheduler)

    def _extend_curve(self) -> None:
        """Play a few held-out instances if that is due, and report the values."""
        for played in play_curve(self.scheduler):
            self.scheduler.reporter.emit(played)
            if self.console is not None:
                self.console.end_play(played)

    def _evaluate(self) -> tuple[ArmResult, ...] | None:
        """Save and evaluate the policy after the last round; None if the evaluation was stopped."""
        scheduler = self.scheduler
        spec = self.setup.spec
        folder = self.folder
        if folder is not None:
            self._together(lambda: self._save_policy(folder))
        if self.console is not None and spec.final_episodes:
            self.console.start_evaluation(spec.final_episodes)
        keepers = open_keepers(scheduler) if folder is not None else []
        results = run_final_evaluation(scheduler, self.hooks.should_stop, keepers)
        if not results:
            return results
        scheduler.reporter.emit(results[-1].to_event(split=VALIDATION, seed=spec.seed))
        reached = shares_of_optimum(self.setup, scheduler.transfers, results)
        kept: list[str] = []
        if folder is not None:
            policies = {result.policy: result.per_episode() for result in results}
            result: dict[str, Any] = {
                "split": VALIDATION,
                "episodes": spec.final_episodes,
                "policies": policies,
            }
            if reached:
                result["share_of_optimal"] = reached
            self._together(
                lambda: folder.write(run_directory.RESULT, lambda: files.json_bytes(result))
            )
            for keeper in keepers:
                try:
                    kept += keeper.write(folder)
                except CheckpointError as error:
                    scheduler.reporter.emit(NetworksFailed(error=str(error)))
        if self.console is not None:
            rows = [result.table_row(results[-1], seed=spec.seed) for result in results]
            played = (
                f"{count_noun(int(spec.final_episodes or 0), 'held-out instance')}, the same "
                "for every policy"
            )
            chosen = (
                f"; {spec.policy_name} takes its likeliest actions" if plays_greedily(spec) else ""
            )
            self.console.print_table(rows, title=played + chosen)
            self.console.print_table(share_table(reached), title=SHARE_TITLE)
            self.console.print_lines(kept)
        return results

    def _save_policy(self, folder: RunDirectory) -> None:
        params = cast(Any, self.scheduler.transfers.fetch_state(self.scheduler.params))
        if not folder.is_writer:
            return
        policy_files.save_policy(
            folder.path / POLICY_FILE,
            params=params.select("net", "value_offset", strict=False),
            normalisers=params.select("observation", strict=False),
            config=self._config,
            facts={**self._hashes, "policy": self.setup.spec.policy_name},
        )

    def _close_files(self, status: Status, error: str | None) -> Losses:
        totals = self.scheduler.graph_totals
        best = max(self.history, key=lambda summary: summary.committed_mean, default=None)
        losses = self.scheduler.reporter.close(
            RunCompleted(
                status=status,
                rounds_done=self.scheduler.round,
                best_round=None if best is None else best.round,
                best_accuracy=None if best is None else best.committed_mean,
                error=error,
                run_s=self.clock() - self.started_at,
                graphs=totals.graphs,
                graph_fallbacks=totals.graph_fallbacks,
            )
        )
        if self.folder is not None:
            self.folder.update(status=status)
        return losses
