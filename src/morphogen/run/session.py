"""A session: one run under way in this process, from its first event to its last, with the files that it owns."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tensordict import TensorDict

from morphogen.analysis.run_log import rounds
from morphogen.config.config_files import dump_config
from morphogen.config.spec import VALIDATION
from morphogen.engine.optimum import OF_WHAT
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import Setup
from morphogen.engine.sizes import sizes
from morphogen.errors import CheckpointError, TrainingDiverged
from morphogen.evaluation.final_evaluation import compared, share_table, shares
from morphogen.evaluation.play import Result
from morphogen.run import manifest, snapshot
from morphogen.run.checkpointer import Keeper, Kind
from morphogen.run.resume import Found, forget_newer, promise
from morphogen.run.sink_checks import METRICS
from morphogen.run.sinks import opened
from morphogen.storage import checkpoint_files, run_directory
from morphogen.storage.run_directory import RunDirectory
from morphogen.storage.tensor_trees import Tree
from morphogen.telemetry.dispatch import NOTHING_LOST, Losses
from morphogen.telemetry.kinds.round import BatchSummary
from morphogen.telemetry.kinds.run import RunCompleted, RunResumed

OnRound = Callable[[BatchSummary, Scheduler], bool | None]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run leaves in memory."""

    history: tuple[BatchSummary, ...]  # of a run that was resumed as far as its event file tells of it
    policy: TensorDict  # parameters of the policy
    results: tuple[Result, ...]  # on held-out instances: the baselines, then the policy of the run
    run_dir: Path | None
    losses: Losses = NOTHING_LOST  # what did not reach the event file or another sink
    stopped: bool = False  # before its last round was over


class Home(NamedTuple):
    """The directory that a run owns, its manifest, and the checkpoint that it goes on from; None: it begins."""

    folder: RunDirectory
    said: Tree
    found: Found | None = None


class Session:
    """One run with its files."""

    def __init__(self, setup: Setup, parts: Parts, home: Home | None, *, console: Any) -> None:
        """What is resumed is checked whole before anything is written."""
        self.setup, self.home, self.console = setup, home, console
        self.clock, self.began, self.halt = parts.clock, parts.clock(), parts.halt
        screen = () if console is None else (console,)
        parts = replace(parts, sinks=(*parts.sinks, *screen), on_epoch=parts.on_epoch or self._on_epoch)
        self.scheduler = Scheduler(setup, parts)
        self.history: list[BatchSummary] = []
        self.losses, self.keeper = NOTHING_LOST, None
        if home is not None:
            self.keeper = Keeper(self.scheduler, home.folder, facts=self._facts(home), clock=self.clock)
            self._open(home) if home.found is None else self._reopen(home, home.found)

    def _facts(self, home: Home) -> Tree:
        """What every checkpoint says of the run."""
        config = dump_config(self.setup.spec)
        return {
            "run_id": home.said["run_id"],
            "config": json.loads(config),
            "config_sha256": run_directory.config_hash(config),
            "data_sha256": self.setup.dataset.fingerprint,
            "world": 1,
            "made": manifest.circumstances(self.setup),
        }

    def _open(self, home: Home) -> None:
        """Begin; what is left of a run that was never saved is gone."""
        shutil.rmtree(home.folder.path / METRICS, ignore_errors=True)
        self._own(home, None)
        self.scheduler.reporter.tell(manifest.started(self.scheduler, home.said))

    def _own(self, home: Home, written: Tree | None) -> int:
        """Open the files of the run where they stood; how many bytes of the event file were cut."""
        sinks, cut = opened(self.setup.spec, home.folder, written)
        config = dump_config(self.setup.spec)
        try:
            home.folder.write_config(config)
            home.folder.update(status="running", config_sha256=run_directory.config_hash(config))
        except OSError as cause:
            raise CheckpointError(self._unwritten(cause)) from cause
        self.scheduler.reporter.listen(sinks)
        return cut

    def _reopen(self, home: Home, found: Found) -> None:
        """Go on where the checkpoint stands; what was written after it is gone, and made again."""
        snapshot.resumed(self.scheduler, found.standing, *found.position)
        cut = self._own(home, found.standing.written)
        forget_newer(home.folder, found)
        self.history += rounds(home.folder.path)
        if found.standing.written is None:  # nothing was told before
            self.scheduler.reporter.tell(manifest.started(self.scheduler, home.said))
        assert self.keeper is not None
        self.keeper.resume(found.manifest)
        told = RunResumed(checkpoint=found.path.name, cut_bytes=cut, skipped=found.skipped)
        self.scheduler.reporter.tell(told)

    def whole(self, on_round: OnRound | None) -> TrainResult:
        """From the first event to the last; the files say how it ended, however it does."""
        status, error = "failed", None
        try:
            result = self._work(on_round)
            status = "stopped" if result.stopped else run_directory.COMPLETED
        except OSError as cause:
            error = self._unwritten(cause)
            raise CheckpointError(error) from cause
        except BaseException as cause:
            stopped = isinstance(cause, KeyboardInterrupt | SystemExit)
            status, error = ("stopped", None) if stopped else ("failed", f"{type(cause).__name__}: {cause}")
            raise
        finally:
            self._end(status, error)
        if self.console is not None:
            self.console.finish(result)
        return replace(result, losses=self.losses)

    def _work(self, on_round: OnRound | None) -> TrainResult:
        scheduler, spec = self.scheduler, self.setup.spec
        self._greet()
        try:
            scheduler.run(lambda summary: self._on_round(summary, on_round), halt=self._between)
        except TrainingDiverged:
            self._save("stop")
            raise
        stopped = scheduler.round < spec.rounds
        self._save("stop" if stopped else "final")
        results = None if stopped else self._close()
        told = tuple(self.history), scheduler.params, results or (), self._place
        return TrainResult(*told, stopped=results is None)

    @property
    def _place(self) -> Path | None:
        return None if self.home is None else self.home.folder.path

    def _greet(self) -> None:
        """Say what is going to run."""
        if self.console is None:
            return
        found, done = None if self.home is None else self.home.found, self._done(self.scheduler.epoch)
        self.console.start(self.setup.spec, {**sizes(self.setup), **self._from(found)}, done=done)
        if found is not None:
            self.console.warn(f"skipped {one['checkpoint']}: {one['reason']}" for one in found.skipped)

    def _from(self, found: Found | None) -> dict[str, str]:
        if found is None:
            return {}
        made = promise(found.manifest["made"], manifest.circumstances(self.setup))
        return {"goes on from": f"{found.path.name}, {made}"}

    def _done(self, epoch: int) -> float:
        """The share of the run that is over before an epoch of the present round."""
        spec = self.setup.spec
        return (self.scheduler.round * spec.episode_length + epoch) / (spec.rounds * spec.episode_length)

    def _on_epoch(self, round: int, epoch: int) -> None:
        if self.console is not None:
            self.console.epoch(round, epoch, self._done(epoch + 1))

    def _between(self) -> bool:
        """Between two epochs: whether to stop; if not, the run is saved where it is time."""
        if self.halt():
            return True
        if self.keeper is not None:
            self.keeper.between()
        return False

    def _on_round(self, summary: BatchSummary, then: OnRound | None) -> bool | None:
        self.history.append(summary)
        if self.console is not None:
            self.console.round(summary)
        if self.keeper is not None:
            self.keeper.end_round(summary)
        on = then(summary, self.scheduler) if then is not None else None
        return False if self.halt() else on

    def _save(self, kind: Kind) -> None:
        if self.keeper is not None:
            self.keeper.save(kind)

    def _close(self) -> tuple[Result, ...] | None:
        """All rounds are over: keep the policy, and judge it; None where that was stopped."""
        scheduler, spec = self.scheduler, self.setup.spec
        if self.home is not None:
            self._keep_policy(self.home.folder)
        results = compared(scheduler, self.halt)
        if not results:
            return results
        scheduler.reporter.tell(results[-1].event(split=VALIDATION, seed=spec.seed))
        reached = shares(self.setup, scheduler.fences, results)
        if self.home is not None:
            found = {result.policy: result.plain() for result in results}
            said = {"split": VALIDATION, "episodes": spec.final_episodes, "policies": found}
            self.home.folder.write_result({**said, **({"share_of_optimal": reached} if reached else {})})
        if self.console is not None:
            rows = [result.row(results[-1], seed=spec.seed) for result in results]
            self.console.table(rows, title=f"{spec.final_episodes} held-out instances, the same for every policy")
            self.console.table(share_table(reached), title=OF_WHAT)
        return results

    def _keep_policy(self, folder: RunDirectory) -> None:
        params, config = self.scheduler.fences.save(self.scheduler.params), dump_config(self.setup.spec)
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

    def _unwritten(self, cause: OSError) -> str:
        return f"{self._place} cannot be written: {cause.strerror or cause}"

    def _end(self, status: str, error: str | None) -> None:
        """Close the files of the run; where it failed already, that is what is told, whatever happens here."""
        try:
            self._last_words(status, error)
        except OSError as cause:
            if status != "failed":
                raise CheckpointError(self._unwritten(cause)) from cause

    def _last_words(self, status: str, error: str | None) -> None:
        """The last event; the manifest says how the run ended."""
        done = self.scheduler.compiled.done
        best = max(self.history, key=lambda summary: summary.committed_mean, default=None)
        self.losses = self.scheduler.reporter.close(
            RunCompleted(
                status=status,
                rounds_done=self.scheduler.round,
                best_round=None if best is None else best.round,
                best_accuracy=None if best is None else best.committed_mean,
                error=error,
                run_s=self.clock() - self.began,
                graphs=done.graphs,
                graph_fallbacks=done.graph_fallbacks,
            )
        )
        if self.home is not None:
            self.home.folder.update(status=status)
