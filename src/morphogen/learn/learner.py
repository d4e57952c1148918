"""Learners: the training of a policy from whole rounds; the protocol, and PPO."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.learn.loss import coefficients_at
from morphogen.learn.update import init_ppo, minibatch_indices, minibatch_step, update_ppo
from morphogen.nets.policy import NetworkPolicy
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose


def run_eager(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is: nothing is compiled."""
    del name
    return function


class Round(NamedTuple):
    """Circumstances of an update."""

    spec: RunSpec  # resolved
    number: int  # from 0
    unit: Callable[[str, Callable[..., Any]], Callable[..., Any]] = run_eager  # (name, function) -> compiled function


class Learner(ABC):
    """Training of a policy by rounds.

    A learner of your own derives from this class and holds no state: `init` builds it, `update` returns the next one.
    The state is a TensorDict or a TensorClass without batch size, with the parameters of the policy under `params`; its
    tree is the same in every round, so that it can be saved and restored.
    """

    name: str

    @abstractmethod
    def init(self, policy: NetworkPolicy, key: Tensor, *, spec: RunSpec) -> Any:
        """Return the state before the first round.  key int64 [3], of the run."""

    @abstractmethod
    def update(
        self, state: Any, rollout: TensorDict, *, policy: NetworkPolicy, round: Round
    ) -> tuple[Any, dict[str, Tensor] | TensorDict]:
        """Train the policy on one round.

        Reads no value on the host, and draws from keyed streams (`state.rng`) alone, so that runs can be repeated.

        Args:
            state: of `init`, or of the round before.
            rollout: rows [T, E] of `engine.episodes.Rollout`: observation, masks, action, log_prob, value, reward,
                terminated, reset_before and more.
            policy: the network with its distribution; `policy.evaluate(params, rollout)` scores the actions again.
            round: config, number of the round, and a function that compiles.

        Returns: the next state, and metrics: 0-d tensors by the names of the event `PpoUpdated`, all optional.
        """


class PpoLearner(Learner):
    """Proximal policy optimisation on whole episodes (`learn.update`), under the settings `ppo.*`."""

    name = "ppo"

    def init(self, policy: NetworkPolicy, key: Tensor, *, spec: RunSpec) -> Any:
        """Return policy, optimiser and scales.  key int64 [3]."""
        del spec
        return init_ppo(policy, key)

    def update(self, state: Any, rollout: TensorDict, *, policy: NetworkPolicy, round: Round) -> tuple[Any, TensorDict]:
        """Run the minibatch steps of a round.  rollout [T, E]."""
        spec = round.spec
        return update_ppo(
            state,
            rollout,
            draw_minibatches(spec, round.number, rollout["action"].device),
            coefficients_at(spec.ppo, round.number),
            policy=policy,
            spec=spec.ppo,
            return_scale=spec.reward.return_scale,
            step=round.unit("update", minibatch_step),
        )


PPO = PpoLearner()


def draw_minibatches(spec: RunSpec, round: int, device: torch.device) -> Tensor:
    """Draw the envs of each minibatch of each PPO epoch: int64 [K, n, E / n]."""
    n = spec.ppo.minibatches or 1
    blocks = rng.env_keys(spec.seed, 0, spec.envs // n, device)
    epoch = torch.arange(spec.ppo.epochs, device=device).unsqueeze(-1)
    stream = rng.stream(blocks, Purpose.PPO_MINIBATCH, round=round, epoch=epoch)
    return minibatch_indices(rng.uniform(stream, n))
