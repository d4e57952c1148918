"""Policies: the protocol, and the policy around a network, which acts and scores recorded rollouts
again.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.compat import tree_map
from morphogen.kernels import one_thread
from morphogen.policy import distribution
from morphogen.policy.controller import ControllerParams
from morphogen.policy.distribution import (
    NO_FLOOR,
    FactoredCategorical,
    Floor,
    Support,
)
from morphogen.policy.observation_scaling import init_stats, normalise
from morphogen.policy.policy_network import LstmNetwork, NetworkInputs, NetworkOutput, PolicyNetwork
from morphogen.rules.legality import action_count
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import get_leaf, get_leaves, unsafe_new
from morphogen.vocab.purpose import Purpose

# rows of a product whose order of sums does not depend on their number, on every processor seen
_ROW_GROUP = 16


def _take(rows: Any, leaf: Tensor | None) -> Tensor | None:
    return None if leaf is None else leaf[rows]


class Evaluation(NamedTuple):
    """Result of scoring a recorded rollout."""

    log_prob: Tensor  # [T, E, 8]
    value: Tensor  # [T, E], return units, offset included
    entropy: Tensor  # [T, E], exact entropy of the action, nats
    # [T, E, 8], normalised entropy of each head times the probability that it is used
    diversity: Tensor
    reach: Tensor  # [T, E, 8], probability that each head is used and has a choice
    contribution: Tensor | None  # [T, E, S], predicted, points / 10


class Policy(Protocol):
    """Interface of policies and baselines for `run_epoch`, `play` and the scheduler.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> arm = mg.build_arm("heuristic", env.setup)
        >>> _, inputs = env.reset()
        >>> memory = arm.policy.initial_hidden(env.envs)
        >>> noise = torch.zeros(env.envs, 38 + len(env.net.slots))
        >>> out = arm.policy.act(arm.params, inputs.observation, inputs.masks, memory, noise)
        >>> out.action.shape, out.log_prob.shape  # a value per head
        (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    purpose: ClassVar[Purpose]
    """Stream of its noise."""

    def init(self, key: Tensor) -> TensorDict:
        """Return initial parameters.  key int64 [3]."""
        ...

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the empty memory, all zeros, [E]."""
        ...

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy
        action.
        """
        ...


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Policy of a network, which a learner trains: observation scaling, floors, sampling, and
    scoring of rollouts.

    Observation statistics and the value offset are part of the parameters: {net, observation,
    value_offset}.

    Args:
        network: gives the logits of the action tables, the value and the next memory.
        floor: smallest probability of a legal choice, per head.

    Promise: `evaluate` gives the log-probabilities and values that `act` gave.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env, policy = (
        ...     mg.make("tiny", envs=2, seed=0),
        ...     mg.NetworkPolicy(mg.LstmNetwork(hidden=16)),
        ... )
        >>> params = policy.init(env.keys[0])
        >>> rollout = mg.Rollout(1, envs=2, slots=2)
        >>> carry, epoch = mg.run_epoch(env, policy, params, mg.first_carry(env, policy))
        >>> rollout.write(0, epoch)
        >>> scores = policy.evaluate(params, rollout.rows)
        >>> torch.allclose(scores.log_prob[0], epoch.choice.log_prob, atol=1e-6)
        True
    """

    purpose: ClassVar[Purpose] = Purpose.ACTION
    network: PolicyNetwork = field(default_factory=LstmNetwork)
    floor: Floor = NO_FLOOR

    def init(self, key: Tensor) -> TensorDict:
        """Return initial parameters, empty observation statistics and value offset 0.  key int64
        [3].
        """
        net = TensorDict(self.network.init(key), batch_size=[], device=key.device)
        offset = torch.zeros((), dtype=torch.float32, device=key.device)
        params = {"net": net, "observation": init_stats(key.device), "value_offset": offset}
        return TensorDict(params, batch_size=[], device=key.device)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the memory of the network at the start of a segment, [E]."""
        return self.network.initial_hidden(envs, device=device)

    def act(
        self,
        params: TensorDict,
        obs: Observation,
        masks: ActionMasks,
        hidden: TensorDict,
        noise: Tensor,
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy
        action.

        Promise: on a CPU the result of an env has equal bits in any stack of two envs and more,
        under any number of threads; alone it is equal up to rounding.
        """
        net, offset = _network_params(params)
        legal = distribution.build_support(masks)
        with one_thread(noise.device):
            features = _network_inputs(normalise(get_branch(params, "observation"), obs))
            out, memory = self._step(net, NetworkInputs(features, legal), hidden)
            dist = distribution.normalise_tables(out.tables, legal, self.floor)
        action, entropy = distribution.sample_action(dist, noise)
        count = action_count(masks)
        return unsafe_new(
            ActOutput,
            obs,
            action=action,
            log_prob=distribution.head_log_prob(dist, action),
            value=out.value + offset,
            hidden=memory,
            op_prob=dist.floored.op.exp(),
            entropy=entropy,
            choices=count,
            forced=count == 1,
        )

    def _step(
        self, net: ControllerParams, inputs: NetworkInputs, hidden: TensorDict
    ) -> tuple[NetworkOutput, TensorDict]:
        """Return outputs and next memory; on a CPU in groups of rows for which products of matrices
        add alike.
        """
        rows = hidden.shape[0]
        missing = -rows % _ROW_GROUP
        device = inputs.legal.op.device
        if rows == 1 or not missing or device.type != "cpu":
            return self.network.step(net, inputs, hidden)

        # the last row again: another one might be no legal input of a network
        padded = torch.arange(rows + missing, device=device).clamp(max=rows - 1)
        more: Any = tree_map(partial(_take, padded), (inputs, get_leaves(hidden)))
        memory = TensorDict(more[1], batch_size=[rows + missing], device=device)
        out, after = self.network.step(net, more[0], memory)
        first: Any = tree_map(partial(_take, slice(rows)), out)
        return first, cast(TensorDict, after[:rows])

    def evaluate(
        self, params: TensorDict, rollout: TensorDict, hidden: TensorDict | None = None
    ) -> Evaluation:
        """Score the actions of a rollout [T, E]; equals `act` row by row.  `hidden`: memory before
        row 0, default 0.
        """
        net, offset = _network_params(params)
        result = self.rescore(net, self.replay_inputs(params, rollout), hidden)
        return result._replace(value=result.value + offset)

    def replay_inputs(self, params: TensorDict, rollout: TensorDict) -> TensorDict:
        """Return the inputs of `rescore`: a rollout [T, E] with normalised observations."""
        parts: Any = rollout
        observation = normalise(get_branch(params, "observation"), parts["observation"])
        inputs = _network_inputs(observation)
        legal = distribution.build_support(parts["masks"])
        keep = (~get_leaf(rollout, "reset_before")).float().unsqueeze(-1)
        inputs = {**inputs, **legal._asdict(), "action": get_leaf(rollout, "action"), "keep": keep}
        return TensorDict(
            {f"in_{name}": leaf for name, leaf in inputs.items()}, batch_size=rollout.batch_size
        )

    def rescore(
        self, net: ControllerParams, rows: TensorDict, hidden: TensorDict | None = None
    ) -> Evaluation:
        """Score `replay_inputs`.  Values lack the offset."""
        dist, out = self.distribution(net, rows, hidden)
        diversity, reach = distribution.head_diversity(dist)
        return Evaluation(
            log_prob=distribution.head_log_prob(dist, get_leaf(rows, "in_action")),
            value=out.value,
            entropy=distribution.action_entropy(dist),
            diversity=diversity,
            reach=reach,
            contribution=out.contribution,
        )

    def distribution(
        self, net: ControllerParams, rows: TensorDict, hidden: TensorDict | None = None
    ) -> tuple[FactoredCategorical, NetworkOutput]:
        """Return the distributions for `replay_inputs` [T, E], and the outputs of the network."""
        keep = get_leaf(rows, "in_keep")
        memory = (
            self.initial_hidden(keep.shape[1], device=keep.device) if hidden is None else hidden
        )
        legal = Support(*(get_leaf(rows, f"in_{name}") for name in Support._fields))
        features = {name: get_leaf(rows, f"in_{name}") for name in _NETWORK_INPUTS}
        out = self.network.unroll(net, NetworkInputs(features, legal), keep, memory)
        return distribution.normalise_tables(out.tables, legal, self.floor), out


def _network_params(params: TensorDict) -> tuple[ControllerParams, Tensor]:
    """Return the parameters of the network by name, and the offset of its values."""
    return get_leaves(get_branch(params, "net")), get_leaf(params, "value_offset")


def get_branch(tree: Any, name: str) -> TensorDict:
    """Return the branch of this name; type checkers know the result, unlike the result of
    `tree[name]`.
    """
    return tree[name]


_NETWORK_INPUTS = ("env", "instance", "slots", "blueprints")


def _network_inputs(observation: Observation) -> dict[str, Tensor]:
    """Leaves of an observation that the network reads."""
    return {name: getattr(observation, name) for name in _NETWORK_INPUTS}
