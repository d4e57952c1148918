"""Networks of trained policies: the protocol, the recurrent network of the package, and any
`torch.nn.Module`.

A network gives the logits of the action tables, the value, and its next memory.  Legality,
probability floors, sampling and the scaling of observations are not its concern:
`policy.policy.NetworkPolicy` adds them around any network.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from morphogen.config.spec import RunSpec
from morphogen.kernels.lstm import lstm_cell, lstm_unroll
from morphogen.policy import controller, distribution
from morphogen.policy.controller import ControllerParams
from morphogen.policy.distribution import LOGITS, SCORES, LogitTables, Support
from morphogen.state.tree_ops import constant_table, get_leaf, unsafe_tensordict
from morphogen.vocab.action import Op

# env [..., 52], instance [..., 8], slots [..., S, 46] normalised; blueprints int64 [..., S]
Features = dict[str, Tensor]


class NetworkInputs(NamedTuple):
    """Inputs of a policy network; `[...]` is [E] in a step and [T, E] in an unroll."""

    features: Features
    """Env [..., 52], instance [..., 8], slots [..., S, 46], normalised; blueprints [..., S]."""
    legal: Support
    """Legal values, in the shape of the tables."""


class NetworkOutput(NamedTuple):
    """Output of a policy network; `[...]` is [E] in a step and [T, E] in an unroll."""

    tables: LogitTables
    """Op [..., 6], slot [..., 6, S], value [..., S, 10, 13]."""
    value: Tensor
    """[...], return units, without the offset."""
    contribution: Tensor | None = None
    """[..., S], predicted contribution of each slot, points / 10."""


class PolicyNetwork(ABC):
    """Network of a trained policy.

    A network of your own derives from this class, is immutable, and takes any number of slots.  Its
    parameters are a flat dict of float32 tensors, among them the weight and the bias of
    `value_layer`: the last layer of the value is linear, and the update rescales it with the
    returns.

    Promises that `morphogen.testing.laws.check_network` checks: `unroll` equals `step` row by row,
    rows do not depend on each other, everything is one graph and reads no value on the host.

    Example:
        >>> import torch
        >>> from dataclasses import dataclass
        >>> import morphogen as mg
        >>> @dataclass(frozen=True)
        ... class Linear(mg.PolicyNetwork):  # one linear layer on the features of the env
        ...     value_layer = "value"
        ...
        ...     def init(self, key):
        ...         return {
        ...             "op": torch.zeros(6, 52),
        ...             "value.weight": torch.zeros(1, 52),
        ...             "value.bias": torch.zeros(1),
        ...         }
        ...
        ...     def step(self, net, inputs, hidden):
        ...         return self.unroll(net, inputs, None, hidden), hidden
        ...
        ...     def unroll(self, net, inputs, keep, hidden):
        ...         x, slots = inputs.features["env"], inputs.features["slots"]
        ...         outputs = slots.new_zeros(
        ...             *slots.shape[:-1], 53
        ...         )  # all slots and values are equally likely
        ...         tables = mg.policy.build_tables(x @ net["op"].T, outputs, inputs.legal)
        ...         return mg.policy.NetworkOutput(
        ...             tables, x @ net["value.weight"][0] + net["value.bias"]
        ...         )
        >>> env, policy = mg.make("tiny", envs=1, seed=0), mg.NetworkPolicy(Linear())
        >>> _, inputs = env.reset()
        >>> memory, noise = policy.initial_hidden(1), torch.zeros(1, 40)
        >>> out = policy.act(
        ...     policy.init(env.keys[0]), inputs.observation, inputs.masks, memory, noise
        ... )
        >>> out.op_prob, out.value  # WAIT and GERMINATE are legal
        (tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]]), tensor([0.]))
    """

    value_layer: str = "value.out"
    decayed: tuple[str, ...] = ()
    """Parameters under weight decay."""

    @abstractmethod
    def init(self, key: Tensor) -> ControllerParams:
        """Return initial parameters {name: float32}.  key int64 [3]."""

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the memory at the start of a segment, zeros [E, ...]; default: none."""
        return TensorDict({}, batch_size=[envs], device=device)

    @abstractmethod
    def step(
        self, net: ControllerParams, inputs: NetworkInputs, hidden: TensorDict
    ) -> tuple[NetworkOutput, TensorDict]:
        """Return outputs and next memory of one epoch.  inputs, hidden [E]."""

    @abstractmethod
    def unroll(
        self, net: ControllerParams, inputs: NetworkInputs, keep: Tensor, hidden: TensorDict
    ) -> NetworkOutput:
        """Return the outputs of a rollout.

        Shapes: inputs [T, E]; keep float32 [T, E, 1], 0 resets the memory before a row; hidden [E]
        before row 0 -> [T, E].
        """


@dataclass(frozen=True, slots=True)
class LstmNetwork(PolicyNetwork):
    """Slot encoder, LSTM, action tables and value: the network of the package, for any number of
    slots.

    Source: Hochreiter and Schmidhuber, Long Short-Term Memory, 1997, with forget gates that are
    initially open.

    Example:
        >>> import morphogen as mg
        >>> network = mg.LstmNetwork(hidden=16)
        >>> net = network.init(mg.rng.env_keys(0, 0, 1)[0])
        >>> sum(leaf.numel() for leaf in net.values()), network.initial_hidden(5)["h"].shape
        (4820, torch.Size([5, 16]))
    """

    hidden: int = 128
    blueprint_dim: int = 4
    contribution: bool = False
    """Adds a head that predicts the next contribution of each slot."""
    op_bias: tuple[float, ...] = (0.0,) * len(Op)
    """Initial log-odds of the ops."""
    full_bias: float = 0.0
    """Initial log-odds of the alpha target FULL."""
    memory: bool = True
    """False: a feed-forward network of the same size."""
    decayed: tuple[str, ...] = ("value.in.weight", "value.mid.weight", "value.out.weight")

    def init(self, key: Tensor) -> ControllerParams:
        """Return initial parameters.  key int64 [3]."""
        shapes = controller.param_shapes(
            self.hidden, self.blueprint_dim, contribution=self.contribution
        )
        outputs = range(SCORES + LOGITS)
        leaf = tuple(
            self.full_bias if i in distribution.FULL_TARGET_OUTPUTS else 0.0 for i in outputs
        )
        biases = {"op.out.bias": self.op_bias, "leaf.out.bias": leaf}
        start = {
            name: constant_table(values, torch.float32, key.device).clone()
            for name, values in biases.items()
        }
        return {**controller.init_params(key, shapes), **start}

    def initial_hidden(self, envs: int, *, device: torch.device | str = "cpu") -> TensorDict:
        """Return the memory at the start of a segment: h and c float32 [E, H], 0; nothing if
        `memory` is False.
        """
        names = ("h", "c") if self.memory else ()
        empty = {
            name: torch.zeros(envs, self.hidden, dtype=torch.float32, device=device)
            for name in names
        }
        return TensorDict(empty, batch_size=[envs], device=device)

    def step(
        self, net: ControllerParams, inputs: NetworkInputs, hidden: TensorDict
    ) -> tuple[NetworkOutput, TensorDict]:
        """Return outputs and next memory of one epoch.  inputs, hidden [E]."""
        x, gates, u = controller.encode(net, inputs.features)
        h, c, _ = lstm_cell(gates, *self._read(hidden, x), net["core.w_hh"])
        after = unsafe_tensordict(hidden, {"h": h, "c": c}) if self.memory else hidden
        return NetworkOutput(*controller.heads(net, x, h, u, inputs.legal)), after

    def unroll(
        self, net: ControllerParams, inputs: NetworkInputs, keep: Tensor, hidden: TensorDict
    ) -> NetworkOutput:
        """Return the outputs of a rollout: encode all rows at once, unroll over T, then all
        heads.
        """
        x, gates, u = controller.encode(net, inputs.features)
        kept = keep if self.memory else torch.zeros_like(keep)
        h = lstm_unroll(gates, kept, *self._read(hidden, x), net["core.w_hh"])
        return NetworkOutput(*controller.heads(net, x, h, u, inputs.legal))

    def _read(self, hidden: TensorDict, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c [E, H], 0 for a network without memory.  x [..., E, D]."""
        if self.memory:
            return get_leaf(hidden, "h"), get_leaf(hidden, "c")
        empty = x.new_zeros(x.shape[-2], self.hidden)
        return empty, empty


@dataclass(frozen=True, slots=True, eq=False)
class ModuleNetwork(PolicyNetwork):
    """A `torch.nn.Module` without memory as a network.

    The module maps (env, instance, slots, blueprints) [..., D] to (op [..., 6], outputs [..., S,
    53], value [...]): outputs are the scores of a slot for the five ops that use one, then its 48
    value logits.  Its parameters start as they are in the module, whatever the key.

    Args:
        module: shared by nothing else; its own parameters are never written to.
        value_layer: name of the `nn.Linear` that gives the value, with one output.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import morphogen as mg
        >>> class Flat(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.op, self.slot, self.value = (
        ...             nn.Linear(60, 6),
        ...             nn.Linear(46, 53),
        ...             nn.Linear(60, 1),
        ...         )
        ...
        ...     def forward(self, env, instance, slots, blueprints):
        ...         x = torch.cat((env, instance), -1)
        ...         return self.op(x), self.slot(slots), self.value(x).squeeze(-1)
        >>> policy = mg.NetworkPolicy(mg.ModuleNetwork(Flat()))
        >>> sorted(policy.init(mg.rng.env_keys(0, 0, 1)[0])["net"].keys())
        ['op.bias', 'op.weight', 'slot.bias', 'slot.weight', 'value.bias', 'value.weight']
    """

    module: nn.Module
    value_layer: str = "value"

    def init(self, key: Tensor) -> ControllerParams:
        """Return copies of the parameters of the module."""
        return {
            name: leaf.detach().clone().to(key.device)
            for name, leaf in self.module.named_parameters()
        }

    def step(
        self, net: ControllerParams, inputs: NetworkInputs, hidden: TensorDict
    ) -> tuple[NetworkOutput, TensorDict]:
        """Return outputs of one epoch, and the memory as it was."""
        return self._outputs(net, inputs), hidden

    def unroll(
        self, net: ControllerParams, inputs: NetworkInputs, keep: Tensor, hidden: TensorDict
    ) -> NetworkOutput:
        """Return the outputs of a rollout, all rows at once."""
        return self._outputs(net, inputs)

    def _outputs(self, net: ControllerParams, inputs: NetworkInputs) -> NetworkOutput:
        features = tuple(
            inputs.features[name] for name in ("env", "instance", "slots", "blueprints")
        )
        op, outputs, value = torch.func.functional_call(self.module, net, features)
        return NetworkOutput(distribution.build_tables(op, outputs, inputs.legal), value)


def build_lstm(spec: RunSpec) -> LstmNetwork:
    """Build the network of the package under the settings `policy.*`."""
    return LstmNetwork(
        hidden=spec.policy.hidden,
        blueprint_dim=spec.policy.blueprint_dim,
        contribution=spec.ppo.contribution_coef > 0,
        op_bias=spec.policy.op_bias,
        full_bias=spec.policy.full_bias,
        memory=spec.policy.memory,
    )
