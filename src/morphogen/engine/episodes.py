"""Lives of all envs of a world from a state on, and what is reported of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.device.transfers import Transfers
from morphogen.engine.epoch import Epoch, VectorEnv, reset_hidden
from morphogen.learn.baselines import RandomPolicy
from morphogen.nets.policy import Policy
from morphogen.state.env import EnvState
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage

Array = np.ndarray[Any, Any]
EPOCH_TRACES = ("network_value", "committed_acc", "accuracy", "trained_params", "missed")  # a row per epoch


@dataclass(frozen=True, slots=True)
class EpisodeTraces:
    """One column per episode.  Accuracies in points; `network_value[-1]` is what the delivered network is worth."""

    network_value: Array  # float [T, n]
    committed_acc: Array  # float [T, n]
    accuracy: Array  # float [T + 1, n], of everything that is blended in; the first row is before the first epoch
    trained_params: Array  # int [T, n], parameters of host and seeds that the epoch trained
    missed: Array  # bool [T, n], the schedule asked for what was not legal
    host_params: Array  # int [n]
    fossil_params: Array  # int [n], at the end
    fossil_blueprint: Array  # int [n, S], blueprint of the fossil; -1 none
    algorithm: Array  # int [n, S], how it is blended; 0 where there is none
    rollbacks: Array  # int [n]

    @property
    def cost(self) -> Array:
        """Parameter-epochs up to the end of each epoch.  int [T, n]."""
        return self.trained_params.cumsum(axis=0)


def run_episodes(
    env: VectorEnv, state: EnvState, policy: Policy | None = None, params: TensorDict | None = None
) -> EpisodeTraces:
    """`lived`, read at once."""
    return fetch_traces(env.transfers, [rollout_on_device(env, state, policy, params)])


def rollout_on_device(
    env: VectorEnv, state: EnvState, policy: Policy | None = None, params: TensorDict | None = None
) -> TensorDict:
    """An episode from a state at its start, on the device; one `plan` crossing an epoch.

    No policy: as the control of the world says.
    """
    policy = RandomPolicy() if policy is None else policy
    params = policy.init(env.key[0]) if params is None else params
    hidden = policy.initial_hidden(env.key.shape[0], device=env.setup.device)
    rows, epoch, before = [], None, state.signals.val_acc
    with torch.no_grad():
        for _ in range(env.setup.spec.episode_length):
            epoch = env.epoch(state, policy, params, hidden)
            state, hidden = epoch.after, reset_hidden(epoch.choice.hidden, epoch.score.terminated)
            rows.append(_epoch_values(epoch))
    assert epoch is not None  # an episode has at least one epoch
    traces = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    traces["accuracy"] = torch.cat((before.unsqueeze(0), traces["accuracy"]))
    return TensorDict({**traces, **_final_values(epoch)}, batch_size=[])


def fetch_traces(transfers: Transfers, parts: Sequence[TensorDict], count: int | None = None) -> EpisodeTraces:
    """The first `count` episodes (all) of several worlds, in order; one `result` crossing."""
    names = [field.name for field in fields(EpisodeTraces)]
    leaves = {name: torch.cat([part[name] for part in parts], dim=int(name in EPOCH_TRACES)) for name in names}
    found = transfers.read("result", TensorDict(leaves, batch_size=[]))
    return EpisodeTraces(
        **{name: rows[:, :count] if name in EPOCH_TRACES else rows[:count] for name, rows in found.items()}
    )


def _epoch_values(epoch: Epoch) -> dict[str, torch.Tensor]:
    """Traces of one epoch; all [E]."""
    signals = epoch.after.signals
    return {
        "network_value": epoch.score.network_value,
        "committed_acc": signals.committed_acc,
        "accuracy": signals.val_acc,
        "trained_params": epoch.host_params + epoch.seed_params.sum(-1),
        "missed": epoch.missed,
    }


def _final_values(epoch: Epoch) -> dict[str, torch.Tensor]:
    """Traces of the last epoch."""
    slots = epoch.after.slots
    fossil = slots.stage == int(Stage.FOSSILIZED)
    return {
        "host_params": epoch.host_params,
        "fossil_params": epoch.score.fossil_params,
        "fossil_blueprint": torch.where(fossil, slots.blueprint, EMPTY),
        "algorithm": torch.where(fossil, slots.algorithm, 0),
        "rollbacks": epoch.after.signals.rollbacks,
    }
