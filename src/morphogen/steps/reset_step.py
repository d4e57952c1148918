"""reset: a new episode with a fresh host and empty slots; init_seeds: parameters of new seeds."""

from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from morphogen.hosts.net import Net
from morphogen.hosts.plan import EpochPlan, Plan
from morphogen.state import schema
from morphogen.state.env import EnvState, Instance
from morphogen.state.tree_ops import get_branches, get_leaves, masked_update, replace
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage


def reset(
    key: Tensor,
    instance: Instance,
    noise: Tensor,
    *,
    episode: Tensor,
    ledger: TensorDict,
    net: Net,
    window: int,
) -> EnvState:
    """Build the unmeasured state of envs at the start of an episode.

    Shapes: key int64 [E, 3]; instance, ledger [E]; noise float32 [E, P] uniform in [0, 1); episode
    int64 [E] -> EnvState [E].
    ledger: `Rule.init`; window: losses that the governor remembers (`GovernorSpec.window`).
    Promise: the host is the initial draw, or has the values of `Net.start`, whose seeds are kept
    for good; every other leaf has its empty value.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> instance, ledger = env.reset()[0].instance, env.rule.init(envs=2, slots=2)
        >>> noise, episode = (
        ...     torch.full((2, env.net.host_size), 0.7),
        ...     torch.zeros(2, dtype=torch.int64),
        ... )
        >>> start = {"episode": episode, "ledger": ledger, "net": env.net, "window": 4}
        >>> state = mg.steps.reset(env.keys, instance, noise, **start)
        >>> state.host.params.shape, state.signals.measured.tolist(), state.slots.stage.tolist()
        (torch.Size([2, 150]), [False, False], [[1, 1], [1, 1]])
    """
    classes = instance.class_of.shape[-1]
    table = instance.usable.shape[-1]
    sizes = net.sizes(envs=key.shape[0], window=window, classes=classes, table=table)
    state: Any = schema.empty_state(sizes, key, ledger)
    params = net.host_layout.draw(noise)
    # one row for each env in turn
    start = [x.to(key.device).index_select(0, key[:, 2] % x.shape[0]) for x in net.start]
    if start:
        params = torch.where(start[0].isnan(), params, start[0])
    host = state.host.replace(params=params)
    clock = state.clock.replace(episode=state.clock.episode + episode)
    # `replace` of the TensorClass copies: a fresh state is locked, and a graph distinguishes locked
    # parts.
    state = state.replace(host=host, instance=instance, clock=clock)
    if not start[1:]:
        return state
    seeds: Any = state.seeds.clone()
    for name, row in zip(net.names, start[2:], strict=True):
        seeds[name, "params"] = row
    return replace(place_fossils(state, *start[1].unbind(-1)), seeds=seeds)


def place_fossils(
    state: EnvState, blueprint: Tensor, algorithm: Tensor, alpha: Tensor | float = 1.0
) -> EnvState:
    """Place unmeasured fossils in empty slots.

    Shapes: state [E]; blueprint [E, S], -1 = unchanged; algorithm [E, S] (`Algorithm`); alpha
    [E, S], all of any dtype -> EnvState [E].
    Promise: nothing but the named slots changes.  `init_seeds` draws their parameters.
    """
    leaves: dict[str, Any] = {"stage": int(Stage.FOSSILIZED), "previous_stage": int(Stage.HOLDING)}
    leaves |= dict.fromkeys(("epochs_in_stage", "previous_epochs_in_stage", "age"), 1)
    leaves |= dict.fromkeys(("blend_target", "alpha", "alpha_start", "alpha_target"), alpha)
    kind = {"blueprint": blueprint, "algorithm": algorithm}
    return replace(state, slots=masked_update(state.slots, (blueprint > EMPTY, leaves | kind)))


def new_seed_rows(is_new: Tensor, plan: Plan | EpochPlan) -> tuple[Tensor, ...]:
    """Envs with a new seed, per slot.

    Shapes: is_new bool [E, S] -> S tensors int64 [B], B = `plan.births` of the slot.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state, _ = env.reset()
        >>> grow = torch.tensor(
        ...     [[mg.Op.GERMINATE, 0, mg.Blueprint.CONV_LIGHT] + 5 * [0], 8 * [mg.Op.WAIT]]
        ... )
        >>> spec = mg.rules.decode(grow, state.slots, env.limits)
        >>> born = spec.target & (spec.op == mg.Op.GERMINATE)[:, None]
        >>> [row.tolist() for row in mg.steps.new_seed_rows(born, env.plan(state, grow))]
        [[0], []]
    """
    order = (~is_new).to(torch.uint8).argsort(dim=0, stable=True)
    return tuple(order[:count, s] for s, count in enumerate(plan.births))


def init_seeds(
    state: EnvState, rows: tuple[Tensor, ...], noise: tuple[Tensor, ...], *, net: Net
) -> EnvState:
    """Write fresh parameters for new seeds, and zeros for the state of their optimiser.

    Shapes: state [E], its slots name the blueprints; per slot rows int64 [n] from `new_seed_rows`,
    noise float32 [n, P_s] uniform in [0, 1), of the blueprint and then of the gate -> EnvState [E].
    n = 0: the slot is unchanged.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> state = env.reset()[0]
        >>> kinds = torch.tensor([[mg.Blueprint.NORM, -1], [-1, -1]])
        >>> state = state.replace(slots=state.slots.replace(blueprint=kinds))
        >>> rows = torch.tensor([0]), torch.tensor([], dtype=torch.int64)
        >>> noise = tuple(
        ...     torch.full((len(row), size), 0.7) for row, size in zip(rows, env.net.seed_sizes)
        ... )
        >>> state = mg.steps.init_seeds(state, rows, noise, net=env.net)
        >>> (
        ...     state.seeds["r0c0", "params"].any(-1).tolist(),
        ...     state.seeds["r1c0", "params"].any(-1).tolist(),
        ... )
        ([True, False], [False, False])
    """
    grown: dict[str, Any] = {**get_branches(state.seeds)}
    for s, (slot, where, uniform) in enumerate(zip(net.slots, rows, noise, strict=True)):
        if where.shape[0]:
            fresh = init_seed_params(state.slots.blueprint[where, s], uniform, s, net=net)
            leaves = get_leaves(grown[slot.name])
            params = leaves.pop("params")
            params = params.index_copy(0, where, fresh.to(params.dtype))
            zeroed = {name: leaf.index_fill(0, where, 0.0) for name, leaf in leaves.items()}
            grown[slot.name] = {"params": params, **zeroed}
    return replace(state, seeds=TensorDict(grown, batch_size=state.batch_size, device=state.device))


def init_seed_params(blueprint: Tensor, noise: Tensor, s: int, *, net: Net) -> Tensor:
    """Storage rows of newborn seeds in slot s.  blueprint int64 [n]; noise float32 [n, P_s] ->
    float32 [n, P_s].
    """
    codes = tuple(net.modules)
    *layouts, gate = net.layouts(s, codes)
    body = torch.zeros_like(noise[:, : noise.shape[-1] - gate.size])
    for code, layout in zip(codes, layouts, strict=True):
        drawn = F.pad(layout.draw(noise[:, : layout.size]), (0, body.shape[-1] - layout.size))
        body = torch.where((blueprint == int(code)).unsqueeze(-1), drawn, body)
    return torch.cat((body, gate.draw(noise[:, body.shape[-1] :])), dim=-1)
