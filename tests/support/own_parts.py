"""Parts as users write them: host, blueprint, network, learner; and twins of built-in ones."""

from dataclasses import dataclass, field

import torch
from tensordict import TensorDict
from torch import nn

import morphogen as mg
from morphogen.hosts.cnn import CnnNetworks


@dataclass(frozen=True)
class Perceptron(mg.Host):
    """Two hidden layers with a slot behind each."""

    inputs: int = 6
    hidden: int = 8
    classes: int = 3
    blueprints = ("shift",)

    @property
    def input_shape(self):
        return (self.inputs,)

    @property
    def all_slots(self):
        return tuple(mg.SlotSpec(f"r0c{i}", self.hidden, execution=i) for i in range(2))

    def layout(self):
        sizes = (
            (self.hidden, self.inputs),
            (self.hidden, self.hidden),
            (self.classes, self.hidden),
        )
        return mg.ParamLayout(
            tuple(mg.fan_in_leaf(f"w{i}", size, size[1]) for i, size in enumerate(sizes))
        )

    def embed(self, inputs):
        return inputs.transpose(0, 1) if inputs.dim() == 3 else inputs.unsqueeze(1)

    def stage(self, i, x, rows):
        return torch.tanh(mg.hosts.rows_linear(x, rows.pick(rows.leaves[f"w{i}"])))

    def head(self, x, rows):
        return mg.hosts.linear(x.transpose(0, 1), rows.pick(rows.leaves["w2"]))


@dataclass(frozen=True)
class Shift(mg.SeedModule):
    """A linear map of the features, 0 at birth."""

    name = "shift"

    def leaves(self, channels):
        return (mg.ParamLeaf("weight", (channels, channels)), mg.ParamLeaf("bias", (channels,)))

    def delta(self, params, x):
        return mg.hosts.rows_linear(x, params["weight"], params["bias"])


@dataclass(frozen=True)
class BlueprintTwin(mg.SeedModule):
    """A blueprint of the package as one from outside."""

    twin: mg.SeedModule

    @property
    def name(self):
        return f"my-{self.twin.name}"

    def leaves(self, channels):
        return self.twin.leaves(channels)

    def delta(self, params, x):
        return self.twin.delta(params, x)


@dataclass(frozen=True)
class HostTwin(mg.Host):
    """A CNN host as one from outside."""

    twin: mg.CnnSpec
    networks: CnnNetworks = field(init=False, repr=False)
    blueprints: tuple = ()

    def __post_init__(self):
        object.__setattr__(self, "networks", CnnNetworks(self.twin))
        object.__setattr__(self, "blueprints", self.blueprints or self.twin.blueprints)
        for name in ("classes", "input_shape", "all_slots", "reach", "width"):
            object.__setattr__(self, name, getattr(self.twin, name))
        for name in ("layout", "masks", "embed", "stage", "head", "params_in_use"):
            object.__setattr__(self, name, getattr(self.networks, name))

    def params(self, width=1.0, classes=None):
        return self.twin.params(width, classes)

    def configured(self, *, width, norm, vocabulary=None):
        return HostTwin(
            self.twin.configured(width=width, norm=norm, vocabulary=vocabulary), self.blueprints
        )

    def layout(self): ...
    def masks(self, instance, like): ...
    def embed(self, inputs): ...
    def stage(self, i, x, rows): ...
    def head(self, x, rows): ...


class Flat(nn.Module):
    """A policy without memory."""

    def __init__(self, width=16):
        super().__init__()
        self.body, self.op = nn.Linear(60, width), nn.Linear(width, 6)
        self.slot, self.value = nn.Linear(46 + width, 53), nn.Linear(width, 1)
        for number, leaf in enumerate(self.parameters()):
            nn.init.constant_(leaf, 0.01 * (number - 3))

    def forward(self, env, instance, slots, blueprints):
        z = torch.tanh(self.body(torch.cat((env, instance), -1)))
        wide = z.unsqueeze(-2).expand(*slots.shape[:-1], z.shape[-1])
        return self.op(z), self.slot(torch.cat((slots, wide), -1)), self.value(z).squeeze(-1)


class Likelier(mg.Learner):
    """Makes what paid more likely: one step of the policy gradient."""

    name = "likelier"

    def init(self, policy, key, *, spec):
        return TensorDict({"params": policy.init(key)}, batch_size=[])

    def update(self, state, rollout, *, policy, round):
        params, earned = state["params"], rollout["reward"].sum(0)

        def loss(net):
            scored = policy.evaluate(params.replace(net=TensorDict(net, batch_size=[])), rollout)
            return -(scored.log_prob.sum((0, -1)) * (earned - earned.nanmean()).nan_to_num()).mean()

        grads, value = torch.func.grad_and_value(loss)(dict(params["net"].items()))
        net = {name: leaf - 0.01 * grads[name] for name, leaf in params["net"].items()}
        return TensorDict(
            {"params": params.replace(net=TensorDict(net, batch_size=[]))}, batch_size=[]
        ), {"policy_loss": value}
