"""Evaluation: a frozen policy on held-out instances, through the same epochs as training.

Every policy meets the same instances, hosts and batches (common random numbers), so that differences between policies
are paired.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets.policy import Policy
from morphogen.rules.counts import host_params
from morphogen.run.data.instances import HELD_OUT_EPISODE
from morphogen.run.fences import Fences
from morphogen.run.schedules import Control
from morphogen.run.setup import Setup
from morphogen.run.statistics import interval, stability
from morphogen.run.telemetry.kinds.run import Evaluated
from morphogen.run.world import World, forget
from morphogen.vocab.purpose import Purpose

Array = np.ndarray[Any, Any]
METRICS = ("network_value", "committed_accuracy", "params_ratio", "success_share", "stability")


@dataclass(frozen=True, slots=True)
class Result:
    """One row per held-out episode.  Accuracies in points; params: of the delivered network."""

    policy: str
    network_value: Array  # float [n]
    committed_accuracy: Array  # float [n]
    params: Array  # int [n], host and fossils
    params_ratio: Array  # float [n], the same over the host
    success_share: Array  # float [n], 1 where the task's accuracy was reached
    stability: Array  # float [n]
    rollbacks: Array  # int [n]

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


def evaluate(
    setup: Setup,
    fences: Fences,
    policy: Policy,
    params: TensorDict,
    *,
    name: str,
    episodes: int,
    control: Control | None = None,
) -> Result:
    """Run `episodes` held-out episodes with sampled actions; one `plan` crossing an epoch and one `result` in all."""
    spec = setup.spec
    envs = min(spec.envs, episodes)
    world = World(setup, fences, instances=Purpose.INSTANCE_HELD_OUT, envs=envs, control=control)
    with closing(world):
        batches = [_batch(world, policy, params, HELD_OUT_EPISODE + i) for i in range(-(-episodes // envs))]
    crossing = TensorDict({key: torch.cat([one[key] for one in batches], dim=-1) for key in batches[0]}, batch_size=[])
    found = {key: value[..., :episodes] for key, value in fences.read("result", crossing).items()}
    if control is not None:
        _heed(control, found["missed"], envs)
    return Result(
        policy=name,
        network_value=found["network_value"],
        committed_accuracy=found["committed_acc"],
        params=found["host_params"] + found["fossil_params"],
        params_ratio=1.0 + found["fossil_params"] / found["host_params"],
        success_share=(found["committed_acc"] >= setup.task.success).astype(np.float64),
        stability=stability(found["accuracy"]),
        rollbacks=found["rollbacks"],
    )


def _heed(control: Control, missed: Array, envs: int) -> None:
    """A ScheduleError where a declared action was not legal.  missed bool [T, n], `envs` episodes at a time."""
    for epoch, row in enumerate(missed):
        for first in range(0, len(row), envs):
            control.heed(row[first : first + envs], epoch, "held-out instances")


def _batch(world: World, policy: Policy, params: TensorDict, episode: int) -> dict[str, Tensor]:
    """One episode of all envs; leaves [E]; the accuracies [T + 1, E], `missed` [T, E]."""
    setup, state = world.setup, world.reset(episode)
    hidden = policy.initial_hidden(state.batch_size[0], device=setup.device)
    accuracy, missed, epoch = [state.signals.val_acc], [], None
    for _ in range(setup.spec.episode_length):
        epoch = world.epoch(state, policy, params, hidden)
        state, hidden = epoch.after, forget(epoch.choice.hidden, epoch.score.terminated)
        accuracy.append(state.signals.val_acc)
        missed.append(epoch.missed)
    assert epoch is not None  # an episode has at least one epoch
    return {
        "network_value": epoch.score.network_value,
        "committed_acc": state.signals.committed_acc,
        "host_params": host_params(state.instance, setup.net.host),
        "fossil_params": epoch.score.fossil_params,
        "rollbacks": state.signals.rollbacks,
        "accuracy": torch.stack(accuracy),
        "missed": torch.stack(missed),
    }
