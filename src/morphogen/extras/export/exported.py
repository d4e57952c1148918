"""The grown network of an env as a module of plain torch."""

import copy
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from morphogen.config.registry import extra_parts
from morphogen.env.environment import Environment
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.extras.export.grown_slot import (
    FirstClasses,
    GrownSequential,
    GrownSlot,
    InputScaling,
    PassThrough,
    normalise_input,
)
from morphogen.extras.modules.initial_values import DrawRecorder
from morphogen.extras.modules.module_host import ModuleHost, plain_copy
from morphogen.hosts.net import Net
from morphogen.hosts.weights import NORMALISATION
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import get_branches, replace
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Stage
from morphogen.vocab.text import format_value

_KINDS = ("dense", "sequences", "images")  # by the axes of the size of a slot
SEEDS = ("all", "delivered")


def export(
    env: Environment,
    state: EnvState,
    i: int,
    *,
    seeds: Literal["all", "delivered"] = "all",
    normalised: bool = True,
) -> nn.Module:
    """Return the grown network of env i as a module of plain torch; its programs and ONNX files
    need no morphogen.

    Args:
        env: the environment of the state.
        state: of all envs.
        i: number of the env in the state.
        seeds: all seeds that run, or those that are delivered, the fossilized ones.
        normalised: the module takes samples as they are stored, and normalises them itself.

    Returns: in evaluation mode; of a module host the user's own class, whose parameters keep their
    names, with a child `slots` that holds the seeds by slot, and `normalisation`.
    Promise: its outputs are the logits of the env, up to the rounding of float32.
    Raises: ConfigError for a host or blueprint without a plain form.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> net = mg.export(env, state, 0)
        >>> net(torch.zeros(5, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([5, 10])
    """
    made = build_plain(env.net, state, i, seeds=seeds)
    return normalise(made, env.setup) if normalised else made.eval()


def normalise(made: nn.Module, setup: Setup) -> nn.Module:
    """Let a module take samples of the data set of a run as they are stored."""
    preparation: Any = setup.dataset.preparation
    if hasattr(preparation, "factors"):
        made.add_module(NORMALISATION, InputScaling(*preparation.factors()))
        made.register_forward_pre_hook(normalise_input)
    return made.eval()


def build_plain(net: Net, state: EnvState, i: int, *, seeds: str = "all") -> nn.Module:
    """Return the network of env i, which takes inputs that are normalised already."""
    if seeds not in SEEDS:
        raise ConfigError(f"seeds: expected {' or '.join(SEEDS)}, got {format_value(seeds)}")
    count = state.batch_size[0]
    if not 0 <= i < count:
        raise ConfigError(f"i: expected 0 .. {count - 1}, the envs of the state, got {i}")
    return build_network(net, take_networks(state)[i : i + 1].cpu(), seeds=seeds)


def take_networks(state: EnvState) -> Any:
    """Return the parts of a state that its networks consist of, a TensorDict [E]."""
    stored: Any = state.seeds
    seeds: Any = {name: stored[name].select("params") for name in get_branches(state.seeds)}
    instance = replace(state.instance, usable=state.instance.usable[:, :0])
    parts: Any = {"params": state.host.params, "seeds": seeds, "slots": state.slots}
    return TensorDict({**parts, "instance": instance}, batch_size=state.batch_size)


def build_network(net: Net, row: Any, *, seeds: str) -> nn.Module:
    """Return a network.  row: of `take_networks`, [1], on the CPU."""
    params = row["params"]
    # whatever the defaults of the process; first values of layers do not come from its generator
    with params.device, DrawRecorder():
        return _build_network(net, row, seeds).to(params.dtype)


def _build_network(net: Net, row: Any, seeds: str) -> nn.Module:
    slots = row["slots"]
    made = _build_host(net, row)
    grown = {
        slot.name: _build_slot(net, row, s)
        for s, slot in enumerate(net.slots)
        if _runs(int(slots.stage[0, s]), seeds)
    }
    _fill_slots(made, net.host, grown)
    classes = int(row["instance"].classes[0])
    if net.host.labelled and classes < net.host.classes:
        made.register_forward_hook(FirstClasses(classes))
    return made


def _runs(stage: int, seeds: str) -> bool:
    first = Stage.FOSSILIZED if seeds == "delivered" else Stage.TRAINING
    return first <= stage <= Stage.FOSSILIZED


def _leaves(parts: Iterable[tuple[Any, Tensor]]) -> dict[str, Tensor]:
    return {leaf.name: part.reshape(leaf.shape) for leaf, part in parts}


def _build_host(net: Net, row: Any) -> nn.Module:
    host = net.host
    leaves = _leaves(net.host_layout.leaf_parts(row["params"]))
    if isinstance(host, ModuleHost):
        made = plain_copy(host, leaves)
        sequential: Any = nn.Sequential
        if type(made).forward is sequential.forward:  # it calls every child
            return GrownSequential(OrderedDict(made.named_children()))
        return made
    build = extra_parts("morphogen.plain_hosts").get(type(host).__name__)
    build = getattr(host, "plain", None) if build is None else build
    if build is None:
        raise ConfigError(
            f"host {type(host).__name__}: expected a method plain(host, leaves, instance) that "
            "builds a module of plain torch, got none"
        )
    return build(host, leaves, row["instance"][0])


def _build_slot(net: Net, row: Any, s: int) -> GrownSlot:
    """Return a slot with the seed of an env."""
    slot = net.slots[s]
    slots = row["slots"]
    code = Blueprint(int(slots.blueprint[0, s]))
    kind = "causal" if net.host.causal else _KINDS[len(slot.size)]
    parts = extra_parts("morphogen.plain").get(kind)
    module = net.modules[code]
    seed = parts and parts.build_seed(module.name, slot.channels)
    if seed is None:
        own = getattr(module, "plain", None)
        if own is None:
            raise ConfigError(
                f"blueprint {module.name}: expected a method plain(channels) that builds a module "
                "of plain torch, with its parameters in the order of its leaves, got none"
            )
        seed = own(slot.channels)
    stored = row["seeds", slot.name, "params"]
    layout, gates = net.layouts(s, (code,))
    _load(seed, layout.leaf_parts(stored[:, : stored.shape[-1] - gates.size]))
    way = Algorithm(int(slots.algorithm[0, s])).name.lower()
    gate = None
    if way == "gate":
        assert parts is not None
        gate = parts.build_gate(slot.channels, kind)
        _load(gate, gates.leaf_parts(stored[:, stored.shape[-1] - gates.size :]))
    grown = GrownSlot(
        seed,
        gate,
        alpha=float(slots.alpha[0, s]),
        way=way,
        isolated=net.host.isolates,
    )
    grown.incubates = int(slots.stage[0, s]) == Stage.TRAINING
    grown.blueprint = module.name
    return grown


def _load(module: nn.Module, parts: Iterable[tuple[Any, Tensor]]) -> None:
    """Copy stored parameters into a module, in order."""
    with torch.no_grad():
        for parameter, (leaf, part) in zip(module.parameters(), parts, strict=True):
            parameter.copy_(part.view(leaf.shape))


def _fill_slots(made: nn.Module, host: Any, grown: dict[str, GrownSlot]) -> None:
    """Put the seeds into a module, as the child `slots`."""
    if not isinstance(host, ModuleHost):
        for name, slot in grown.items():
            made.slots[name] = slot  # type: ignore[index]
        return
    if hasattr(made, "slots"):
        raise ConfigError(
            f"host {host.name}: expected a module without an attribute slots, which holds the "
            "grown seeds, got one"
        )
    made.add_module("slots", nn.ModuleDict(copy.copy(grown)))
    for name, slot in grown.items():
        made.get_submodule(host.slot_path(name)).register_forward_hook(PassThrough(slot))
