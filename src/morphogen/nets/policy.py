"""The policy: what acts on an observation, and scores again what was done."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.nets import controller
from morphogen.nets.distribution import (
    FULL_TARGET_OUTPUTS,
    LOGITS,
    NO_FLOOR,
    SCORES,
    FactoredCategorical,
    Floor,
    Lookups,
    Support,
    action_entropy,
    build_lookups,
    build_support,
    head_diversity,
    head_entropy,
    head_log_prob,
    normalise_tables,
    sample_action,
)
from morphogen.nets.normalise import init_stats, normalise
from morphogen.rules.legality import action_count
from morphogen.state.decision import ActionMasks, ActOutput, Observation
from morphogen.state.tree_ops import constant_table, unsafe_new
from morphogen.vocab.action import Op
from morphogen.vocab.purpose import Purpose


class Evaluation(NamedTuple):
    """A rollout scored again."""

    log_prob: Tensor  # [T, E, 8]
    value: Tensor  # [T, E], return units, offset included
    entropy: Tensor  # [T, E], exact entropy of the action, nats
    diversity: Tensor  # [T, E, 8], normalised entropy of each head times how often it is reached
    reach: Tensor  # [T, E, 8], how often each head is reached with a choice
    contribution: Tensor | None  # [T, E, S], predicted, points / 10


class Policy(Protocol):
    """What the scheduler needs of a policy; every baseline has it."""

    purpose: ClassVar[Purpose]  # what its noise is drawn for

    def init(self, key: Tensor) -> TensorDict:
        """Parameters from a key int64 [3]."""
        ...

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """The empty memory, all zeros, [E]."""
        ...

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy action."""
        ...


@dataclass(frozen=True, slots=True)
class RecurrentPolicy:
    """The learned policy: slot encoder, LSTM, factored action tables.  Works for any number of slots."""

    purpose: ClassVar[Purpose] = Purpose.ACTION
    hidden: int = 128
    blueprint_dim: int = 4
    floor: Floor = NO_FLOOR
    contribution: bool = False  # has a head that predicts the next contribution of each slot
    op_bias: tuple[float, ...] = (0.0,) * len(Op)  # log-odds of the ops at the start
    full_bias: float = 0.0  # log-odds of the alpha target FULL at the start

    def init(self, key: Tensor) -> TensorDict:
        """Parameters, empty observation statistics, value offset 0.  key int64 [3]."""
        parts = controller.controller_leaves(self.hidden, self.blueprint_dim, contribution=self.contribution)
        leaf = tuple(self.full_bias if i in FULL_TARGET_OUTPUTS else 0.0 for i in range(SCORES + LOGITS))
        biases = {"op.out.bias": self.op_bias, "leaf.out.bias": leaf}
        start = {name: constant_table(values, torch.float32, key.device).clone() for name, values in biases.items()}
        net = TensorDict({**controller.init_params(key, parts), **start}, batch_size=[], device=key.device)
        offset = torch.zeros((), device=key.device)
        found = {"net": net, "observation": init_stats(key.device), "value_offset": offset}
        return TensorDict(found, batch_size=[], device=key.device)

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Memory of an env at the start of a segment: h and c float32 [E, H], 0."""
        empty = {name: torch.zeros(envs, self.hidden, device=device) for name in ("h", "c")}
        return TensorDict(empty, batch_size=[envs], device=device)

    def act(
        self, params: TensorDict, obs: Observation, masks: ActionMasks, hidden: TensorDict, noise: Tensor
    ) -> ActOutput:
        """One action per env.  noise float32 [E, 38 + S], standard Gumbel; zeros give the greedy action."""
        net = dict(params["net"].items())
        look_up, legal = build_lookups(self.floor, noise.device), build_support(masks)
        x, u = controller.encode(net, network_inputs(normalise(params["observation"], obs)))
        h, c = controller.lstm_cell(net, controller.input_gates(net, x), hidden["h"], hidden["c"])
        z = controller.residual_core(net, x, h)
        dist = normalise_tables(
            controller.logit_tables(net, z, controller.slot_context(net, z, u), legal, look_up), legal, look_up
        )
        action = sample_action(dist, noise)
        count = action_count(masks)
        return unsafe_new(
            ActOutput,
            obs,
            action=action,
            log_prob=head_log_prob(dist, action),
            value=controller.value(net, z) + params["value_offset"],
            hidden=unsafe_new(TensorDict, hidden, h=h, c=c),
            op_prob=dist.floored.op.exp(),
            entropy=head_entropy(dist, action),
            choices=count,
            forced=count == 1,
        )

    def evaluate(self, params: TensorDict, rollout: TensorDict, hidden: TensorDict | None = None) -> Evaluation:
        """The actions of a rollout [T, E] scored again; equals `act` row by row.  `hidden`: before row 0, default 0."""
        net = dict(params["net"].items())
        found = self.rescore(
            net, self.replay_inputs(params, rollout), build_lookups(self.floor, rollout["action"].device), hidden
        )
        return found._replace(value=found.value + params["value_offset"])

    def replay_inputs(self, params: TensorDict, rollout: TensorDict) -> TensorDict:
        """What `replay` reads of a rollout, observations normalised, [T, E]."""
        seen = network_inputs(normalise(params["observation"], rollout["observation"]))
        legal = build_support(rollout["masks"])
        keep = (~rollout["reset_before"]).float().unsqueeze(-1)
        found = {**seen, **legal._asdict(), "action": rollout["action"], "keep": keep}
        return TensorDict({f"in_{name}": leaf for name, leaf in found.items()}, batch_size=rollout.batch_size)

    def rescore(
        self, net: controller.ControllerParams, rows: TensorDict, lookups: Lookups, hidden: TensorDict | None = None
    ) -> Evaluation:
        """Score rows from `rows`: encode all at once, unroll over T, heads for all at once.  Values without offset."""
        dist, z, context = self.distribution(net, rows, lookups, hidden)
        spread, reach = head_diversity(dist)
        return Evaluation(
            log_prob=head_log_prob(dist, rows["in_action"]),
            value=controller.value(net, z),
            entropy=action_entropy(dist),
            diversity=spread,
            reach=reach,
            contribution=controller.contribution(net, context) if self.contribution else None,
        )

    def distribution(
        self, net: controller.ControllerParams, rows: TensorDict, lookups: Lookups, hidden: TensorDict | None = None
    ) -> tuple[FactoredCategorical, Tensor, Tensor]:
        """The distribution in every row of `rows`, what the heads saw [T, E, H], and the slots' contexts."""
        memory = self.initial_hidden(rows.shape[1], device=rows["in_keep"].device) if hidden is None else hidden
        legal = Support(*(rows[f"in_{name}"] for name in Support._fields))
        x, u = controller.encode(net, {name: rows[f"in_{name}"] for name in _NETWORK_INPUTS})
        z = controller.residual_core(net, x, controller.lstm_unroll(net, x, rows["in_keep"], memory["h"], memory["c"]))
        context = controller.slot_context(net, z, u)
        return normalise_tables(controller.logit_tables(net, z, context, legal, lookups), legal, lookups), z, context


_NETWORK_INPUTS = ("env", "instance", "slots", "blueprints")


def network_inputs(observation: Observation) -> dict[str, Tensor]:
    """The leaves that the network reads."""
    return {name: getattr(observation, name) for name in _NETWORK_INPUTS}
