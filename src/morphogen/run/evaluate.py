"""Evaluation: a frozen policy on held-out instances, through the same epochs as training.

Every policy meets the same instances, hosts and batches (common random numbers), so that differences between policies
are paired.
"""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.rules.counts import host_params, seed_params
from morphogen.run.data.instances import HELD_OUT_EPISODE
from morphogen.run.fences import Fences
from morphogen.run.policies import Arm
from morphogen.run.schedules import Control
from morphogen.run.setup import Setup
from morphogen.run.statistics import interval, stability
from morphogen.run.telemetry.kinds.run import Evaluated
from morphogen.run.world import Epoch, World, forget
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.stage import Stage

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
    kept: Array  # int [n, S], blueprint of the fossil in each slot, -1 without one
    value_by_epoch: Array  # float [T, n], network value if it were delivered then
    param_epochs_by_epoch: Array  # int [T, n], so far
    seconds: float  # wall clock of all episodes

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
        found = {name: getattr(self, name).tolist() for name in ("param_epochs", "minibatches", "kept")}
        return {**found, "seconds": self.seconds}


def play(setup: Setup, fences: Fences, arm: Arm, *, name: str, episodes: int, split: Split = HELD_OUT) -> Result:
    """Run `episodes` episodes of a split with sampled actions; one `plan` crossing an epoch and one `result` in all."""
    began, envs = time.perf_counter(), min(setup.spec.envs, episodes)
    world = World(setup, fences, instances=split.purpose, envs=envs, control=arm.control)
    with closing(world):
        batches = [_batch(world, arm, split.first + i) for i in range(-(-episodes // envs))]
    crossing = TensorDict({key: torch.cat([one[key] for one in batches], dim=-1) for key in batches[0]}, batch_size=[])
    found = {key: value[..., :episodes] for key, value in fences.read("result", crossing).items()}
    if arm.control is not None:
        _heed(arm.control, found["missed"], envs, split.label)
    return _result(setup, found, name=name, seconds=time.perf_counter() - began)


def _result(setup: Setup, found: dict[str, Array], *, name: str, seconds: float) -> Result:
    """What was read, an episode a row; leaves [..., n]."""
    host, spent = found["host_params"], found["param_epochs"].cumsum(axis=0)
    return Result(
        policy=name,
        network_value=found["network_value"][-1],
        committed_accuracy=found["committed_acc"],
        params=host + found["fossil_params"],
        params_ratio=1.0 + found["fossil_params"] / host,
        success_share=(found["committed_acc"] >= setup.task.success).astype(np.float64),
        stability=stability(found["accuracy"]),
        rollbacks=found["rollbacks"],
        param_epochs=spent[-1],
        minibatches=np.full_like(host, len(spent) * setup.spec.data.minibatches),
        kept=found["kept"].T,
        value_by_epoch=found["network_value"],
        param_epochs_by_epoch=spent,
        seconds=seconds,
    )


def _heed(control: Control, missed: Array, envs: int, where: str) -> None:
    """A ScheduleError where a declared action was not legal.  missed bool [T, n], `envs` episodes at a time."""
    for epoch, row in enumerate(missed):
        for first in range(0, len(row), envs):
            control.heed(row[first : first + envs], epoch, where)


def _batch(world: World, arm: Arm, episode: int) -> dict[str, Tensor]:
    """One episode of all envs.  Leaves [E]; of every epoch [T, E], accuracies [T + 1, E]; `kept` [S, E]."""
    setup, state = world.setup, world.reset(episode)
    hidden = arm.policy.initial_hidden(state.batch_size[0], device=setup.device)
    traces: dict[str, list[Tensor]] = {"accuracy": [state.signals.val_acc]}
    for _ in range(setup.spec.episode_length):
        epoch = world.epoch(state, arm.policy, arm.params, hidden)
        state, hidden = epoch.after, forget(epoch.choice.hidden, epoch.score.terminated)
        for key, leaf in _traced(epoch).items():
            traces.setdefault(key, []).append(leaf)
    fossil = state.slots.stage == int(Stage.FOSSILIZED)
    params = seed_params(state.slots, setup.net.counts, setup.net.gate_counts)
    return {
        "committed_acc": state.signals.committed_acc,
        "host_params": host_params(state.instance, setup.net.host),
        "fossil_params": torch.where(fossil, params, 0).sum(-1),
        "rollbacks": state.signals.rollbacks,
        "kept": torch.where(fossil, state.slots.blueprint, EMPTY).T,
        **{key: torch.stack(leaves) for key, leaves in traces.items()},
    }


def _traced(epoch: Epoch) -> dict[str, Tensor]:
    """What is read of every epoch; leaves [E]."""
    return {
        "accuracy": epoch.after.signals.val_acc,
        "missed": epoch.missed,
        "network_value": epoch.score.network_value,
        "param_epochs": epoch.host_params + epoch.seed_params.sum(-1),
    }
