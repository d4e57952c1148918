"""Policies: the protocol, and the learned recurrent policy, which acts and scores recorded rollouts again."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets import controller, distribution
from morphogen.nets.distribution import NO_FLOOR, FactoredCategorical, Floor, Lookups, Support
from morphogen.nets.normalise import init_stats, normalise
from morphogen.rules.legality import action_count
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import constant_table, unsafe_new
from morphogen.vocab.action import Op
from morphogen.vocab.purpose import Purpose


class Evaluation(NamedTuple):
    """Result of scoring a recorded rollout."""

    log_prob: Tensor  # [T, E, 8]
    value: Tensor  # [T, E], return units, offset included
    entropy: Tensor  # [T, E], exact entropy of the action, nats
    diversity: Tensor  # [T, E, 8], normalised entropy of each head times the probability that it is used
    reach: Tensor  # [T, E, 8], probability that each head is used and has a choice
    contribution: Tensor | None  # [T, E, S], predicted, points / 10


class Policy(Protocol):
    """Interface of policies and baselines for the scheduler."""

    purpose: ClassVar[Purpose]  # stream of its noise

    def init(self, key: Tensor) -> TensorDict:
        """Return initial parameters.  key int64 [3]."""
        ...

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the empty memory, all zeros, [E]."""
        ...

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy action."""
        ...


@dataclass(frozen=True, slots=True)
class RecurrentPolicy:
    """Learned policy: slot encoder, LSTM, factored action tables, for any number of slots.

    Observation statistics and the value offset are part of the parameters: {net, observation, value_offset}.
    """

    purpose: ClassVar[Purpose] = Purpose.ACTION
    hidden: int = 128
    blueprint_dim: int = 4
    floor: Floor = NO_FLOOR
    contribution: bool = False  # adds a head that predicts the next contribution of each slot
    op_bias: tuple[float, ...] = (0.0,) * len(Op)  # initial log-odds of the ops
    full_bias: float = 0.0  # initial log-odds of the alpha target FULL

    def init(self, key: Tensor) -> TensorDict:
        """Return initial parameters, empty observation statistics and value offset 0.  key int64 [3]."""
        parts = controller.controller_leaves(self.hidden, self.blueprint_dim, contribution=self.contribution)
        outputs = range(distribution.SCORES + distribution.LOGITS)
        leaf = tuple(self.full_bias if i in distribution.FULL_TARGET_OUTPUTS else 0.0 for i in outputs)
        biases = {"op.out.bias": self.op_bias, "leaf.out.bias": leaf}
        start = {name: constant_table(values, torch.float32, key.device).clone() for name, values in biases.items()}
        net = TensorDict({**controller.init_params(key, parts), **start}, batch_size=[], device=key.device)
        offset = torch.zeros((), device=key.device)
        params = {"net": net, "observation": init_stats(key.device), "value_offset": offset}
        return TensorDict(params, batch_size=[], device=key.device)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the memory at the start of a segment: h and c float32 [E, H], 0."""
        empty = {name: torch.zeros(envs, self.hidden, device=device) for name in ("h", "c")}
        return TensorDict(empty, batch_size=[envs], device=device)

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy action."""
        net = dict(params["net"].items())
        lookups, legal = distribution.build_lookups(self.floor, noise.device), distribution.build_support(masks)
        x, u = controller.encode(net, _network_inputs(normalise(params["observation"], obs)))
        h, c = controller.lstm_cell(net, controller.input_gates(net, x), hidden["h"], hidden["c"])
        z = controller.residual_core(net, x, h)
        tables = controller.logit_tables(net, z, controller.slot_context(net, z, u), legal, lookups)
        dist = distribution.normalise_tables(tables, legal, lookups)
        action = distribution.sample_action(dist, noise)
        count = action_count(masks)
        return unsafe_new(
            ActOutput,
            obs,
            action=action,
            log_prob=distribution.head_log_prob(dist, action),
            value=controller.value(net, z) + params["value_offset"],
            hidden=unsafe_new(TensorDict, hidden, h=h, c=c),
            op_prob=dist.floored.op.exp(),
            entropy=distribution.head_entropy(dist, action),
            choices=count,
            forced=count == 1,
        )

    def evaluate(self, params: TensorDict, rollout: TensorDict, hidden: TensorDict | None = None) -> Evaluation:
        """Score the actions of a rollout [T, E]; equals `act` row by row.  `hidden`: memory before row 0, default 0."""
        net = dict(params["net"].items())
        lookups = distribution.build_lookups(self.floor, rollout["action"].device)
        result = self.rescore(net, self.replay_inputs(params, rollout), lookups, hidden)
        return result._replace(value=result.value + params["value_offset"])

    def replay_inputs(self, params: TensorDict, rollout: TensorDict) -> TensorDict:
        """Return the inputs of `rescore`: a rollout [T, E] with normalised observations."""
        inputs = _network_inputs(normalise(params["observation"], rollout["observation"]))
        legal = distribution.build_support(rollout["masks"])
        keep = (~rollout["reset_before"]).float().unsqueeze(-1)
        inputs = {**inputs, **legal._asdict(), "action": rollout["action"], "keep": keep}
        return TensorDict({f"in_{name}": leaf for name, leaf in inputs.items()}, batch_size=rollout.batch_size)

    def rescore(
        self, net: controller.ControllerParams, rows: TensorDict, lookups: Lookups, hidden: TensorDict | None = None
    ) -> Evaluation:
        """Score `replay_inputs`: encode all rows at once, unroll over T, then all heads.  Values lack the offset."""
        dist, z, context = self.distribution(net, rows, lookups, hidden)
        diversity, reach = distribution.head_diversity(dist)
        return Evaluation(
            log_prob=distribution.head_log_prob(dist, rows["in_action"]),
            value=controller.value(net, z),
            entropy=distribution.action_entropy(dist),
            diversity=diversity,
            reach=reach,
            contribution=controller.contribution(net, context) if self.contribution else None,
        )

    def distribution(
        self, net: controller.ControllerParams, rows: TensorDict, lookups: Lookups, hidden: TensorDict | None = None
    ) -> tuple[FactoredCategorical, Tensor, Tensor]:
        """Return the distributions for `replay_inputs`, the inputs of the heads [T, E, H], and slot contexts."""
        memory = self.initial_hidden(rows.shape[1], device=rows["in_keep"].device) if hidden is None else hidden
        legal = Support(*(rows[f"in_{name}"] for name in Support._fields))
        x, u = controller.encode(net, {name: rows[f"in_{name}"] for name in _NETWORK_INPUTS})
        z = controller.residual_core(net, x, controller.lstm_unroll(net, x, rows["in_keep"], memory["h"], memory["c"]))
        context = controller.slot_context(net, z, u)
        tables = controller.logit_tables(net, z, context, legal, lookups)
        return distribution.normalise_tables(tables, legal, lookups), z, context


_NETWORK_INPUTS = ("env", "instance", "slots", "blueprints")


def _network_inputs(observation: Observation) -> dict[str, Tensor]:
    """Leaves of an observation that the network reads."""
    return {name: getattr(observation, name) for name in _NETWORK_INPUTS}
