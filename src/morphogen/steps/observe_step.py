"""Observation of each env: a function of the state, in the order of the table in
`vocab.observation`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.hosts.net import Net
from morphogen.rules import features
from morphogen.rules.counts import parameter_price, seed_params
from morphogen.rules.legality import conditions
from morphogen.rules.stages import occupied
from morphogen.state.decision import Observation, join_vectors, split_vectors
from morphogen.state.env import EnvState, Slots
from morphogen.state.tree_ops import choose, computed_table, constant_table, divide_ints, unsafe_new
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.observation import FEATURE_LIMIT, flat_flag_index
from morphogen.vocab.text import short_repr

# that decide which parameters of a host are in use
_SIZE_PARAMETERS = ("width", "classes", "reach")


@short_repr
class StateFacts(NamedTuple):
    """Quantities of a state that observing it, decoding an action and scoring the step share."""

    conditions: Tensor
    """bool [7, E, 6, S], of `rules.conditions`."""
    host_params: Tensor
    """int64 [E], in use."""
    seed_params: Tensor
    """int64 [E, S]."""


def state_facts(state: EnvState, limits: Limits, *, net: Net) -> StateFacts:
    """Compute facts shared by observing, decoding and scoring a step.

    Shapes: state [E] -> bool [7, E, 6, S], int64 [E], int64 [E, S].

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=1, seed=0)
        >>> facts = mg.steps.state_facts(env.reset()[0], env.limits, net=env.net)
        >>> facts.conditions.shape, facts.host_params.tolist(), facts.seed_params.tolist()
        (torch.Size([7, 1, 6, 2]), [72], [[0, 0]])
    """
    params = seed_params(state.slots, net.counts, net.gate_counts)
    return StateFacts(
        conditions(state.slots, limits), net.networks.params_in_use(state.instance), params
    )


def observe(
    state: EnvState,
    limits: Limits,
    *,
    net: Net,
    episode_length: int,
    param_budget: int,
    facts: StateFacts | None = None,
    observed: tuple[str, ...] = INSTANCE_PARAMETERS,
) -> Observation:
    """Raw features of the envs before their next action, all finite.

    Shapes: state [E] -> env float32 [E, 52], instance [E, 8], slots [E, S, 46], blueprints int64
    [E, S], finite [E].
    facts: of `state_facts` for this state, if known; observed: parameters of the instance that may
    show.
    Promise: a row reads only its own env; envs that differ only in unobserved parameters look
    alike; a value with flag 0 is 0; a value that is not finite, or beyond `FEATURE_LIMIT`, becomes
    0 together with its flag and makes `finite` False.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> sizes = {
        ...     "net": env.net,
        ...     "episode_length": env.horizon,
        ...     "param_budget": env.rule.terms.param_budget,
        ... }
        >>> seen = mg.steps.observe(env.reset()[0], env.limits, **sizes)
        >>> seen.env.shape, seen.slots.shape, seen.finite.tolist()
        (torch.Size([2, 52]), torch.Size([2, 2, 46]), [True, True])
    """
    slots = state.slots
    facts = state_facts(state, limits, net=net) if facts is None else facts
    allowed = facts.conditions.all(0)[:, int(Op.GERMINATE) :]  # every op but WAIT
    params = facts.seed_params
    host = facts.host_params
    price = state.instance.param_price
    host = (
        host if set(_SIZE_PARAMETERS) <= set(observed) else torch.full_like(host, net.host.params())
    )
    price = price if "param_price" in observed else torch.zeros_like(price)
    share = params.float() / host.float().unsqueeze(-1)
    cost = parameter_price(params, price, param_budget=param_budget)
    env_groups = (
        divide_ints(state.clock.epoch, episode_length).unsqueeze(-1),
        features.measurement_features(state.signals),
        features.size_features(slots, share),
        features.occupancy_features(slots, limits),
        allowed.any(-1).float(),
        features.feedback_features(state.signals),
    )
    instance = features.instance_features(state.instance, net.host.classes, observed)
    history = features.progress_features(
        slots, state.signals, share, cost, episode_length=episode_length
    )
    each = torch.cat(_slot_features(slots, limits, history, allowed, net=net), dim=-1)
    clean, good = _remove_nonfinite(
        join_vectors(torch.cat(env_groups, dim=-1), instance, each), len(net.slots)
    )
    env, instance, each = split_vectors(clean)
    return unsafe_new(
        Observation,
        state,
        env=env,
        instance=instance,
        slots=each,
        blueprints=choose(occupied(slots.stage), slots.blueprint, -1),
        finite=good.all(-1),
        nonfinite=(~good).sum(-1),
    )


def _slot_features(
    slots: Slots, limits: Limits, history: Tensor, allowed: Tensor, *, net: Net
) -> tuple[Tensor, ...]:
    """The slot block.  history [E, S, 6], allowed [E, 5, S]."""
    declared = len(net.stages)  # because `all_slots` of a user's host may not trace
    static = tuple(
        ((slot.execution + 1) / declared, math.log2(slot.channels) / 10.0) for slot in net.slots
    )
    return (
        features.lifecycle_features(slots, limits.enabled),
        features.contribution_features(slots),
        history,
        allowed.mT.float(),
        constant_table(static, torch.float32, slots.stage.device).expand(
            slots.stage.shape[0], -1, -1
        ),
        occupied(slots.stage).unsqueeze(-1).float(),
    )


def _remove_nonfinite(raw: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Zero values with flag 0, and invalid values with all that share their flag.

    Shapes: raw float32 [E, N], a row of `join_vectors` -> clean values, and which of them are
    valid, bool [E, N].
    """
    flag = computed_table(flat_flag_index, slots, dtype=torch.int64, device=raw.device)
    raw = choose(raw.index_select(-1, flag) != 0, raw, 0.0)
    good = raw.abs() <= FEATURE_LIMIT  # False for NaN
    shared = computed_table(_shared_flags, slots, dtype=raw.dtype, device=raw.device)
    sound = (~good).to(raw.dtype) @ shared == 0
    return choose(sound, raw, 0.0), good


def _shared_flags(slots: int) -> tuple[tuple[float, ...], ...]:
    """Matrix of the features that are valid together: all with the same flag, and the flag."""
    flags = flat_flag_index(slots)
    last = len(flags) - 1  # flag of the features that have none
    roots = [i if flag == last else flag for i, flag in enumerate(flags)]
    return tuple(tuple(float(mine == other) for other in roots) for mine in roots)
