"""Training from end to end: set-up, rounds, the final checkpoint, and the closing comparison on held-out instances."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from morphogen.errors import CheckpointError
from morphogen.run import checkpoint, directory
from morphogen.run.evaluate import Result, evaluate
from morphogen.run.policies import Arm, arm_of
from morphogen.run.scheduler import Parts, Scheduler
from morphogen.run.setup import Setup, build_setup
from morphogen.run.sinks import check, sinks_of
from morphogen.run.sizes import sizes
from morphogen.run.telemetry.dispatch import NOTHING_LOST, Losses
from morphogen.run.telemetry.kinds.round import BatchSummary
from morphogen.run.telemetry.kinds.run import CheckpointSaved, RunCompleted, RunStarted
from morphogen.vocab.codec import dump_config
from morphogen.vocab.observation import ENV, SLOT
from morphogen.vocab.spec import RunSpec, resolve

RIVALS = ("wait", "random", "heuristic")  # who every policy is compared with at the end


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run leaves in memory."""

    history: tuple[BatchSummary, ...]
    policy: TensorDict  # parameters of the policy
    results: tuple[Result, ...]  # on held-out instances: the baselines, then the policy of the run
    run_dir: Path | None
    losses: Losses = NOTHING_LOST  # what did not reach the event file or another sink


def train_ppo_vectorized(
    spec: RunSpec | None = None,
    /,
    *,
    parts: Parts | None = None,
    on_round: Callable[[BatchSummary, Scheduler], bool | None] | None = None,
    out: Path | str | None = None,
    console: Any = None,
    command: str = "",
    **fields: Any,
) -> TrainResult:
    """Run a spec: train its policy (or run a baseline) for all rounds, save, and compare on held-out instances.

    `fields` are fields of RunSpec instead of a spec.  `out` None writes nothing.  `on_round(summary, scheduler)` is
    called after every round; False stops the run.  Errors of the input are raised before anything is written.
    """
    if spec is not None and fields:
        raise TypeError(f"both a spec and the fields {', '.join(fields)} were given; want one of them")
    asked = RunSpec(**fields) if spec is None else spec
    if out is not None:
        check(asked)
    setup = build_setup(resolve(asked))
    with torch.no_grad():
        run = _Run(setup, parts or Parts(), None if out is None else Path(out), console=console, command=command)
        return run.whole(on_round)


class _Run:
    """One run with its files."""

    def __init__(self, setup: Setup, parts: Parts, out: Path | None, *, console: Any, command: str) -> None:
        self.setup, self.out, self.console, self.command = setup, out, console, command
        self.config = dump_config(setup.spec)
        self.began = parts.clock()
        self.clock = parts.clock
        self.history: list[BatchSummary] = []
        self.losses = NOTHING_LOST
        self.folder = None if out is None else directory.create(out, config=self.config, manifest=self._manifest())
        own = () if self.folder is None else sinks_of(setup.spec, self.folder)
        screen = () if console is None else (console,)
        parts = replace(parts, sinks=(*parts.sinks, *own, *screen), on_epoch=parts.on_epoch or self._on_epoch)
        self.scheduler = Scheduler(setup, parts)

    def whole(self, on_round: Callable[[BatchSummary, Scheduler], bool | None] | None) -> TrainResult:
        """From the first event to the last; the files say how it ended, however it does."""
        status, error = "failed", None
        try:
            result = self._work(on_round)
            status = "completed" if len(self.history) == self.setup.spec.rounds else "stopped"
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

    def _work(self, on_round: Callable[[BatchSummary, Scheduler], bool | None] | None) -> TrainResult:
        if self.console is not None:
            self.console.start(self.setup.spec, sizes(self.setup))
        self.scheduler.reporter.tell(self._started())
        self.scheduler.run(lambda summary: self._on_round(summary, on_round))
        self._save()
        results = self._compare()
        return TrainResult(tuple(self.history), self.scheduler.params, results, self.out)

    def _on_epoch(self, round: int, epoch: int) -> None:
        if self.console is not None:
            epochs = self.setup.spec.episode_length
            done = (round * epochs + epoch + 1) / (self.setup.spec.rounds * epochs)
            self.console.epoch(round, epoch, done)

    def _on_round(
        self, summary: BatchSummary, then: Callable[[BatchSummary, Scheduler], bool | None] | None
    ) -> bool | None:
        self.history.append(summary)
        if self.console is not None:
            self.console.round(summary)
        return then(summary, self.scheduler) if then is not None else None

    def _save(self) -> None:
        """The final checkpoint and the policy file."""
        if self.folder is None:
            return
        started, scheduler = self.clock(), self.scheduler
        scheduler.timer.mark("checkpoint")
        facts = {"config_sha256": directory.config_hash(self.config), "data_sha256": self.setup.dataset.fingerprint}
        shared = {} if scheduler.learner is None else {"learner": scheduler.fences.save(scheduler.learner)}
        shared["signatures"] = tuple(map(tuple, scheduler.compiled.signatures))
        envs = {} if scheduler.state is None else scheduler.fences.save(scheduler.state)
        path = checkpoint.save_checkpoint(
            self.folder.checkpoints, round=scheduler.round, epoch=0, envs=envs, shared=shared, facts=facts
        )
        params = scheduler.fences.save(scheduler.params)
        checkpoint.save_policy(
            self.folder.policy,
            params=params.select("net", "value_offset", strict=False),
            normalisers=params.select("observation", strict=False),
            config=self.config,
            facts={**facts, "policy": self.setup.spec.policy_name},
        )
        size = sum(file.stat().st_size for file in path.iterdir())
        saved = CheckpointSaved(
            path=str(path.relative_to(self.folder.path)), kind="final", size_bytes=size, save_s=self.clock() - started
        )
        scheduler.reporter.tell(saved)
        scheduler.reporter.flush()
        self.folder.update(last_checkpoint=saved.path)

    def _compare(self) -> tuple[Result, ...]:
        """The baselines and the policy of the run on the same held-out instances."""
        setup, scheduler = self.setup, self.scheduler
        episodes = setup.spec.final_episodes
        if not episodes:
            return ()
        own = setup.spec.policy_name
        results = []
        for name in (*(rival for rival in RIVALS if rival != own), own):
            arm = Arm(scheduler.policy, scheduler.control) if name == own else arm_of(name, setup)
            params = scheduler.params if name == own else arm.policy.init(scheduler.world.key[0])
            results.append(
                evaluate(
                    setup,
                    scheduler.fences,
                    arm.policy,
                    params,
                    name=name,
                    episodes=episodes,
                    control=arm.control,
                )
            )
        scheduler.reporter.tell(results[-1].event(split="validation", seed=setup.spec.seed))
        if self.folder is not None:
            found = {result.policy: result.plain() for result in results}
            self.folder.write_result({"split": "validation", "episodes": episodes, "policies": found})
        if self.console is not None:
            rows = [result.row(results[-1], seed=setup.spec.seed) for result in results]
            self.console.table(rows, title=f"{episodes} held-out instances, the same for every policy")
        return tuple(results)

    def _manifest(self) -> dict[str, Any]:
        spec, dataset = self.setup.spec, self.setup.dataset
        return {
            "run_id": directory.config_hash(f"{self.config}{self.out}")[:12],
            "command": self.command,
            "task": spec.task,
            "status": "running",
            "config_sha256": directory.config_hash(self.config),
            "data_sha256": dataset.fingerprint,
            "data_sizes": dataset.sizes,
            "data_placement": dataset.placement,
            "schedule_sha256": None if self.setup.schedule is None else self.setup.schedule.sha256,
            "last_checkpoint": None,
            **directory.environment(),
        }

    def _started(self) -> RunStarted:
        spec, setup, manifest = self.setup.spec, self.setup, self._manifest()
        net = self.scheduler.params.get("net", None)
        return RunStarted(
            run_id=manifest["run_id"],
            command=self.command,
            task=spec.task,
            preset=spec.preset,
            config=json.loads(self.config),
            config_sha256=manifest["config_sha256"],
            data_sha256=manifest["data_sha256"],
            data_placement=manifest["data_placement"],
            seed=spec.seed,
            envs=spec.envs,
            slots=setup.net.names,
            rounds=spec.rounds,
            epochs=spec.episode_length,
            minibatches=spec.data.minibatches,
            batch=spec.data.batch,
            world=1,
            devices=(str(setup.device),),
            precision="float32",
            compile=spec.engine.compile,
            host_params=setup.net.host_size,
            obs_dim=len(ENV) + len(SLOT) * len(setup.net.slots),
            policy_params=0 if net is None else sum(leaf.numel() for leaf in net.values()),
            versions=manifest["versions"],
        )

    def _unwritten(self, cause: OSError) -> str:
        return f"{self.out} cannot be written: {cause.strerror or cause}"

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
                rounds_done=len(self.history),
                best_round=None if best is None else best.round,
                best_accuracy=None if best is None else best.committed_mean,
                error=error,
                run_s=self.clock() - self.began,
                graphs=done.graphs,
                graph_fallbacks=done.graph_fallbacks,
            )
        )
        if self.folder is not None:
            self.folder.update(status=status)
