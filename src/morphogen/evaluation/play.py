"""Evaluation: a frozen policy on held-out instances, through the same epochs as training.

Every policy meets the same instances, hosts and batches (common random numbers), so that differences between policies
are paired.
"""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from morphogen.data.instances import HELD_OUT_EPISODE
from morphogen.device.transfers import Transfers
from morphogen.engine.action_control import ScheduleControl
from morphogen.engine.episodes import EpisodeTraces, fetch_traces, rollout_on_device
from morphogen.engine.epoch import VectorEnv
from morphogen.engine.policies import Arm
from morphogen.engine.setup import Setup
from morphogen.evaluation.bootstrap import interval, stability
from morphogen.telemetry.kinds.run import Evaluated
from morphogen.vocab.purpose import Purpose

Array = np.ndarray[Any, Any]
METRICS = ("network_value", "committed_accuracy", "params_ratio", "success_share", "stability")


class Split(NamedTuple):
    """Which instances are played."""

    purpose: Purpose
    first: int  # number of the first episode
    label: str


HELD_OUT = Split(Purpose.INSTANCE_HELD_OUT, HELD_OUT_EPISODE, "held-out instances")
TRAINING = Split(Purpose.INSTANCE, 0, "training instances")


@dataclass(frozen=True, slots=True)
class Result:
    """One row per episode.  Accuracies in points; params: of the delivered network."""

    policy: str
    network_value: Array  # float [n]
    committed_accuracy: Array  # float [n]
    params: Array  # int [n], host and fossils
    params_ratio: Array  # float [n], the same over the host
    success_share: Array  # float [n], 1 where the task's accuracy was reached
    stability: Array  # float [n]
    rollbacks: Array  # int [n]
    param_epochs: Array  # int [n], parameters that trained, host and living seeds, summed over the epochs
    minibatches: Array  # int [n], that each parameter of the host was trained with
    seconds: float  # wall clock of all episodes
    lives: EpisodeTraces  # epoch by epoch

    def event(self, *, split: str, seed: int) -> Evaluated:
        """The numbers as an event, each with its 95 % interval."""
        found = {name: interval(getattr(self, name), seed=seed) for name in METRICS}
        stats = {name: dict(zip(("mean", "low", "high"), row, strict=True)) for name, row in found.items()}
        return Evaluated(episodes=len(self.network_value), split=split, **stats)

    def row(self, own: "Result", *, seed: int) -> dict[str, object]:
        """The numbers as a row of the closing table, beside those of the run's own policy on the same instances."""
        _, low, high = interval(self.network_value, seed=seed)
        behind, least, most = interval(own.network_value - self.network_value, seed=seed)
        return {
            "policy": self.policy,
            "network value": float(self.network_value.mean()),
            "95 % interval": f"{low:.3f} .. {high:.3f}",
            "accuracy %": float(self.committed_accuracy.mean()),
            "parameters": round(float(self.params.mean())),
            "x host": float(self.params_ratio.mean()),
            f"{own.policy} minus it": "" if own is self else f"{behind:+.3f} ({least:+.3f} .. {most:+.3f})",
        }

    def plain(self) -> dict[str, list[float]]:
        """Every number per episode, for a file."""
        return {name: getattr(self, name).tolist() for name in (*METRICS, "params", "rollbacks")}

    def costs(self) -> dict[str, Any]:
        """What it took, for a file: per episode, and the seconds of all."""
        found = {name: getattr(self, name).tolist() for name in ("param_epochs", "minibatches")}
        return {**found, "kept": self.lives.fossil_blueprint.tolist(), "seconds": self.seconds}


def play(setup: Setup, fences: Transfers, arm: Arm, *, name: str, episodes: int, split: Split = HELD_OUT) -> Result:
    """Run `episodes` episodes of a split; one `plan` crossing an epoch and one `result` in all."""
    began, envs = time.perf_counter(), min(setup.spec.envs, episodes)
    world = VectorEnv(setup, fences, instances=split.purpose, envs=envs, control=arm.control)
    with closing(world):
        starts = range(split.first, split.first - (-episodes // envs))
        parts = [rollout_on_device(world, world.reset(episode), arm.policy, arm.params) for episode in starts]
    lives = fetch_traces(fences, parts, episodes)
    if arm.control is not None:
        _heed(arm.control, lives.missed, envs, split.label)
    return result_of(setup, lives, name=name, seconds=time.perf_counter() - began)


def result_of(setup: Setup, lives: EpisodeTraces, *, name: str, seconds: float) -> Result:
    """What is reported of lives on held-out instances."""
    host, accuracy = lives.host_params, lives.committed_acc[-1]
    return Result(
        policy=name,
        network_value=lives.network_value[-1],
        committed_accuracy=accuracy,
        params=host + lives.fossil_params,
        params_ratio=1.0 + lives.fossil_params / host,
        success_share=(accuracy >= setup.task.success).astype(np.float64),
        stability=stability(lives.accuracy),
        rollbacks=lives.rollbacks,
        param_epochs=lives.cost[-1],
        minibatches=np.full_like(host, len(lives.trained_params) * setup.spec.data.minibatches),
        seconds=seconds,
        lives=lives,
    )


def _heed(control: ScheduleControl, missed: Array, envs: int, where: str) -> None:
    """A ScheduleError where a declared action was not legal.  missed bool [T, n], `envs` episodes at a time."""
    for epoch, row in enumerate(missed):
        for first in range(0, len(row), envs):
            control.check_missed(row[first : first + envs], epoch, where)
