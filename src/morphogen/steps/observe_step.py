"""Observation of each env: a function of the state, in the order of the table in `vocab.observation`."""

import math

import torch
from torch import Tensor

from morphogen.nets.net import Net
from morphogen.rules import features
from morphogen.rules.counts import parameter_price, seed_params
from morphogen.rules.legality import legal
from morphogen.rules.stages import occupied
from morphogen.state.decision import Observation
from morphogen.state.env import EnvState, Slots
from morphogen.state.tree_ops import choose, constant_table, divide_ints, unsafe_new
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.observation import FEATURE_LIMIT, FEATURES, flag_index

_FLAGS = {vector: flag_index(columns) for vector, columns in FEATURES.items()}
_HAS_FLAG = {  # per feature: one-hot over the flags
    vector: tuple(tuple(float(flag == owner) for flag in range(len(owners))) for owner in owners)
    for vector, owners in _FLAGS.items()
}


def observe(
    state: EnvState,
    limits: Limits,
    *,
    net: Net,
    episode_length: int,
    param_budget: int,
    conditions_met: Tensor | None = None,
) -> Observation:
    """Raw features of the envs before their next action, all finite.

    Shapes: state [E] -> env float32 [E, 52], instance [E, 8], slots [E, S, 46], blueprints int64 [E, S], finite [E].
    conditions_met: bool [7, E, 6, S] from `rules.conditions`, if known.
    Promise: a row reads only its own env; a value with flag 0 is 0; a value that is not finite, or beyond
    `FEATURE_LIMIT`, becomes 0 together with its flag and makes `finite` False.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=2, seed=0)
        >>> sizes = {"net": env.net, "episode_length": env.horizon, "param_budget": env.rule.terms.param_budget}
        >>> seen = mg.steps.observe(env.reset()[0], env.limits, **sizes)
        >>> seen.env.shape, seen.slots.shape, seen.finite.tolist()
        (torch.Size([2, 52]), torch.Size([2, 2, 46]), [True, True])
    """
    slots = state.slots
    allowed = legal(slots, limits) if conditions_met is None else conditions_met.all(0)
    allowed = allowed[:, int(Op.GERMINATE) :]  # every op but WAIT
    host = net.networks.params_in_use(state.instance).float().unsqueeze(-1)
    params = seed_params(slots, net.counts, net.gate_counts)
    share, cost = params.float() / host, parameter_price(params, state.instance.param_price, param_budget=param_budget)
    env_groups = (
        divide_ints(state.clock.epoch, episode_length).unsqueeze(-1),
        features.measurement_features(state.signals),
        features.size_features(slots, share),
        features.occupancy_features(slots, limits),
        allowed.any(-1).float(),
        features.feedback_features(state.signals),
    )
    env, env_ok = _remove_nonfinite(torch.cat(env_groups, dim=-1), "env")
    instance, instance_ok = _remove_nonfinite(features.instance_features(state.instance, net.host.classes), "instance")
    history = features.progress_features(slots, state.signals, share, cost, episode_length=episode_length)
    each, each_ok = _remove_nonfinite(torch.cat(_slot_features(slots, limits, history, allowed, net=net), -1), "slots")
    good = torch.cat((env_ok, instance_ok, each_ok.flatten(1)), dim=-1)
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


def _slot_features(slots: Slots, limits: Limits, history: Tensor, allowed: Tensor, *, net: Net) -> tuple[Tensor, ...]:
    """The slot block.  history [E, S, 6], allowed [E, 5, S]."""
    declared = len(net.host.all_slots)
    static = tuple(((slot.execution + 1) / declared, math.log2(slot.channels) / 10.0) for slot in net.slots)
    return (
        features.lifecycle_features(slots, limits.enabled),
        features.contribution_features(slots),
        history,
        allowed.mT.float(),
        constant_table(static, torch.float32, slots.stage.device).expand(slots.stage.shape[0], -1, -1),
        occupied(slots.stage).unsqueeze(-1).float(),
    )


def _remove_nonfinite(raw: Tensor, vector: str) -> tuple[Tensor, Tensor]:
    """Zero values with flag 0, and invalid values with their flags.  -> (clean, valid bool), both shaped as `raw`."""
    owner = constant_table(_FLAGS[vector], torch.int64, raw.device)
    always = torch.ones_like(raw[..., :1])  # the flag of the features that have none
    valid = torch.cat((raw, always), dim=-1).index_select(-1, owner) != 0
    raw = choose(valid, raw, 0.0)
    good = raw.abs() <= FEATURE_LIMIT  # False for NaN
    wrong = (~good).float() @ constant_table(_HAS_FLAG[vector], torch.float32, raw.device)  # small integers: exact
    sound = good & (wrong == 0)  # a flag falls with the first of its features
    sound = sound & torch.cat((sound, always != 0), dim=-1).index_select(-1, owner)
    return choose(sound, raw, 0.0), good
