"""Replays of a policy: its actions again, or networks of the size that it grew, from scratch."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.host import Host
from morphogen.config.spec import RunSpec, find_host
from morphogen.env.action_control import TableControl
from morphogen.env.environment import Environment
from morphogen.env.episodes import EPOCH_TRACES, Array, EpisodeTraces
from morphogen.env.phases import PolicyInputs
from morphogen.env.policies import build_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import PlayContext
from morphogen.evaluation.play import ArmResult
from morphogen.extras.search.instance_sets import (
    BuildControl,
    held_out_instance_sets,
    play_held_out,
    traces_arm,
)
from morphogen.hosts.net import networks_of
from morphogen.log.round_summary import running_value
from morphogen.state.env import EnvState
from morphogen.steps.reset_step import place_fossils

STATIC = "static"
STATIC_COST = "static-cost"
STATIC_PARAMS = "static-params"
MAX_TIMES_WIDTH = 16  # widest host that is considered, in widths of the host of the run


def first_result(results: Mapping[str, ArmResult]) -> ArmResult:
    """Return the replayed result of the run's policy."""
    return next(iter(results.values()))


def never_grow(setup: Setup) -> BuildControl:
    """Return a function that gives all episodes the control of `wait`."""
    control = build_arm("wait", setup).control
    return lambda places: control


def repeat_actions(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> EpisodeTraces:
    """Repeat the actions of the first arm in its worlds: the same episodes, bit for bit."""
    action = first_result(results).traces.action  # [T, n, 8]

    def control(places: Tensor) -> TableControl:
        table = torch.tensor(action[:, places.numpy()], device=context.setup.device)
        table = torch.cat((table, torch.zeros_like(table[:1])))
        present = torch.ones_like(table[..., 0], dtype=torch.bool)
        present[-1] = False
        return TableControl(table, present)

    return play_held_out(context, episodes, control)


def train_wider_hosts(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> EpisodeTraces:
    """Train hosts without seeds, widened to the nearest size of the networks of the first arm.

    Raises: ConfigError for a host without a width.
    """
    spec = context.setup.spec
    widths = nearest_widths(context, first_result(results).traces.fossil_params)
    parts: list[EpisodeTraces] = []
    for width in np.unique(widths).tolist():
        setup = build_setup(spec_of_width(spec, width))
        chosen = np.flatnonzero(widths == width)
        wider = replace(context, setup=setup)
        parts.append(play_held_out(wider, episodes, never_grow(setup), chosen=chosen))
    order = np.argsort(np.argsort(widths, kind="stable"))
    columns: dict[str, Array] = {}
    for field in fields(EpisodeTraces):
        axis = int(field.name in EPOCH_TRACES)
        joined = np.concatenate([getattr(part, field.name) for part in parts], axis)
        columns[field.name] = joined.take(order, axis)
    return EpisodeTraces(**columns)


def nearest_widths(context: PlayContext, params: Array) -> Array:
    """Return the widths of hosts with `params` more parameters than the hosts of held-out episodes.

    Shapes: params int [n] -> int [n], at least the width of the run.
    """
    setup = context.setup
    first = setup.spec.host.width
    hosts: dict[int, Host] = {}
    for width in range(first, MAX_TIMES_WIDTH * first + 1):
        with suppress(ConfigError):  # for a width that the host cannot have
            hosts[width] = find_host(spec_of_width(setup.spec, width))
    if len({host.params() for host in hosts.values()}) == 1:
        kind = type(hosts[first]).__name__
        raise ConfigError(f"{STATIC_PARAMS}: expected a host whose width can be set, got {kind}")
    rows: list[Tensor] = []
    for instances in held_out_instance_sets(setup.spec, len(params)):
        env = instances.open(context)
        drawn = init_episode(env, instances.episode).instance
        rows.append(
            torch.stack([networks_of(host).params_in_use(drawn) for host in hosts.values()])
        )
    sizes = context.transfers.read(
        "result", TensorDict({"sizes": torch.cat(rows, dim=1)}, batch_size=[])
    )["sizes"]
    return np.array([*hosts])[np.abs(sizes - (sizes[0] + params)).argmin(axis=0)]


def spec_of_width(spec: RunSpec, width: int) -> RunSpec:
    """Return the spec with hosts of another width."""
    return replace(spec, host=replace(spec.host, width=width))


def train_grown_networks(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> EpisodeTraces:
    """Train the final networks of the first arm from scratch, in their worlds, for as many
    minibatches.

    Placing the fossils takes one `plan` transfer more than an episode.
    """
    grown = first_result(results).traces
    blueprints = torch.tensor(grown.fossil_blueprint, device=context.setup.device)
    algorithms = torch.tensor(grown.algorithm, device=context.setup.device)

    def start(env: Environment, episode: int, places: Tensor) -> tuple[EnvState, PolicyInputs]:
        own = places.to(blueprints.device)
        return start_with_fossils(env, episode, blueprints[own], algorithms[own])

    return play_held_out(context, episodes, never_grow(context.setup), start=start)


play_static_arm = traces_arm(STATIC, train_grown_networks)


def play_static_cost_arm(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> ArmResult:
    """Stop the static arm after as many parameter-epochs as the grown networks took."""
    static = results.get(STATIC) or play_static_arm(context, episodes, results)
    setup = context.setup
    traces = static.traces
    epoch = first_epoch_at_cost(traces, first_result(results).param_epochs)
    value, accuracy, cost = (
        np.take_along_axis(rows, epoch[None], axis=0)[0]
        for rows in (
            running_value(traces.network_value, setup.task.objective),
            traces.committed_acc,
            traces.cost,
        )
    )
    return replace(
        static,
        policy=STATIC_COST,
        network_value=value,
        committed_accuracy=accuracy,
        param_epochs=cost,
        success_share=(accuracy >= setup.task.success).astype(np.float64),
        minibatches=(epoch + 1) * setup.spec.data.minibatches,
    )


def first_epoch_at_cost(traces: EpisodeTraces, cost: Array) -> Array:
    """First epoch at whose end `cost` parameter-epochs were spent, or the last one.  int [n]."""
    enough = traces.cost >= cost
    return np.where(enough.any(axis=0), enough.argmax(axis=0), len(enough) - 1)


play_schedule_arm = traces_arm("schedule", repeat_actions)
play_static_params_arm = traces_arm(STATIC_PARAMS, train_wider_hosts)


def init_episode(env: Environment, episode: int) -> EnvState:
    """Return the fresh envs of an episode of their split, not yet measured."""
    return env.init_state(torch.full_like(env.keys[:, 0], episode + env.split.first_episode))


def start_with_fossils(
    env: Environment, episode: int, blueprint: Tensor, algorithm: Tensor
) -> tuple[EnvState, PolicyInputs]:
    """Start an episode with fossils, measured.  blueprint, algorithm int64 [E, S]."""
    state = place_fossils(init_episode(env, episode), blueprint, algorithm)
    return env.start(state, blueprint > 0)
