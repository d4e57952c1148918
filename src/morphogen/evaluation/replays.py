"""Replays of the episodes of a policy: its actions again, or networks of the size that it grew, from scratch."""

import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import SCHEDULE, STATIC, STATIC_COST, STATIC_PARAMS, RunSpec, find_host
from morphogen.data.instances import draw_instances
from morphogen.device.transfers import Transfers
from morphogen.engine import phases
from morphogen.engine.action_control import PerEnvControl
from morphogen.engine.environment import Environment
from morphogen.engine.episodes import EPOCH_TRACES, Array, EpisodeTraces, fetch_all_traces, run_episodes
from morphogen.engine.phases import PolicyInputs
from morphogen.engine.policies import build_arm
from morphogen.engine.setup import Setup, build_setup
from morphogen.errors import ConfigError
from morphogen.evaluation.play import ArmResult, build_result
from morphogen.evaluation.schedule_search import held_out_instance_sets
from morphogen.nets.net import networks_of
from morphogen.state.env import EnvState
from morphogen.steps.reset_step import place_fossils
from morphogen.telemetry.round_summary import running_value
from morphogen.vocab.host import Host

# Setup, transfers, episodes, and the results so far, the policy of the run first -> result.
ArmPlayer = Callable[[Setup, Transfers, int, Mapping[str, ArmResult]], ArmResult]
MAX_TIMES_WIDTH = 16  # of a run: the widest host that is considered


def play_schedule_arm(setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]) -> ArmResult:
    """Repeat the actions of the first arm in its worlds, which gives the same episodes, bit for bit."""
    del episodes
    start_s, action = time.perf_counter(), next(iter(results.values())).traces.action  # [T, n, 8]
    sets, parts = held_out_instance_sets(setup.spec, action.shape[1]), list[TensorDict]()
    counts = [len(instances.tasks) for instances in sets]
    for instances, rows in zip(sets, np.split(action, np.cumsum(counts)[:-1], axis=1), strict=True):
        own = setup.exchange.places(len(instances.tasks))
        table = torch.tensor(rows[:, own.numpy()], device=setup.device)
        table = torch.cat((table, torch.zeros_like(table[:1])))
        present = torch.ones_like(table[..., 0], dtype=torch.bool)
        present[-1] = False
        with instances.choose(own).open(setup, transfers, PerEnvControl(table, present)) as env, torch.no_grad():
            parts.append(run_episodes(env, *env.reset(instances.episode)))
    traces = fetch_all_traces(setup.exchange, transfers, parts, counts)
    return build_result(setup, traces, name=SCHEDULE, seconds=time.perf_counter() - start_s)


def play_static_params_arm(
    setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]
) -> ArmResult:
    """Train hosts that grow nothing and are widened to the nearest number of parameters of what the first arm grew.

    Raises: ConfigError for a host without a width.
    """
    grown = next(iter(results.values()))
    start_s, widths = time.perf_counter(), nearest_widths(setup, transfers, grown.traces.fossil_params)
    rows: dict[str, Array] = {}
    for width in np.unique(widths).tolist():
        wider = build_setup(replace(setup.spec, host=replace(setup.spec.host, width=width)), setup.exchange)
        chosen = np.flatnonzero(widths == width)
        traces = _play_some(wider, transfers, chosen, episodes)
        for field in fields(traces):
            column = np.moveaxis(getattr(traces, field.name), int(field.name in EPOCH_TRACES), 0)
            rows.setdefault(field.name, np.empty((episodes, *column.shape[1:]), column.dtype))[chosen] = column
    whole = {name: np.moveaxis(array, 0, int(name in EPOCH_TRACES)) for name, array in rows.items()}
    return build_result(setup, EpisodeTraces(**whole), name=STATIC_PARAMS, seconds=time.perf_counter() - start_s)


def _play_some(setup: Setup, transfers: Transfers, chosen: Array, episodes: int) -> EpisodeTraces:
    """Play `wait` on some of the episodes of an evaluation.  chosen int [m], ascending places of episodes."""
    control, parts, counts, first = build_arm("wait", setup).control, list[TensorDict](), list[int](), 0
    for instances in held_out_instance_sets(setup.spec, episodes):
        last = first + len(instances.tasks)
        here = torch.as_tensor(chosen[(chosen >= first) & (chosen < last)] - first, device="cpu")
        first = last
        if len(here):
            own = here[setup.exchange.places(len(here))]
            with instances.choose(own).open(setup, transfers, control) as env, torch.no_grad():
                parts.append(run_episodes(env, *env.reset(instances.episode)))
            counts.append(len(here))
    return fetch_all_traces(setup.exchange, transfers, parts, counts)


def nearest_widths(setup: Setup, transfers: Transfers, params: Array) -> Array:
    """Return the widths of hosts with as many parameters in use as those of held-out episodes and `params` more.

    Shapes: params int [n] -> int [n], at least the width of the run.
    """
    first = setup.spec.host.width
    found = {width: _host_of_width(setup.spec, width) for width in range(first, MAX_TIMES_WIDTH * first + 1)}
    hosts = {width: host for width, host in found.items() if host is not None}
    if len({host.params() for host in hosts.values()}) == 1:
        raise ConfigError(f"{STATIC_PARAMS}: expected a host whose width can be set, got {type(hosts[first]).__name__}")
    rows = []
    for instances in held_out_instance_sets(setup.spec, len(params)):
        keys = instances.tasks.to(setup.device)
        episode = torch.full_like(keys[:, 0], instances.episode + instances.split.first_episode)
        labels, purpose = setup.dataset.labels, instances.split.purpose
        when = {"spec": setup.spec, "labels": labels, "purpose": purpose}
        drawn = draw_instances(keys, episode, torch.zeros_like(episode), **when)
        rows.append(torch.stack([networks_of(host).params_in_use(drawn) for host in hosts.values()]))
    sizes = transfers.read("result", TensorDict({"sizes": torch.cat(rows, dim=1)}, batch_size=[]))["sizes"]
    return np.array([*hosts])[np.abs(sizes - (sizes[0] + params)).argmin(axis=0)]


def _host_of_width(spec: RunSpec, width: int) -> Host | None:
    """Return the host of a run in another width; None for a width that it cannot have."""
    try:
        return find_host(replace(spec, host=replace(spec.host, width=width)))
    except ConfigError:
        return None


def play_static_arm(setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]) -> ArmResult:
    """Train the final networks of the first arm from scratch, with the same number of minibatches."""
    del episodes
    start_s, grown = time.perf_counter(), next(iter(results.values())).traces
    fossils = {"fossil_blueprint": grown.fossil_blueprint, "algorithm": grown.algorithm}
    traces = train_static_baseline(setup, transfers, **fossils)
    return build_result(setup, traces, name=STATIC, seconds=time.perf_counter() - start_s)


def play_static_cost_arm(
    setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]
) -> ArmResult:
    """Static arm, stopped after as many parameter-epochs as the grown networks took."""
    grown = next(iter(results.values()))
    static = results.get(STATIC) or play_static_arm(setup, transfers, episodes, results)
    traces, epoch = static.traces, first_epoch_at_cost(static.traces, grown.param_epochs)
    value, accuracy, cost = (
        np.take_along_axis(rows, epoch[None], axis=0)[0]
        for rows in (running_value(traces.network_value, setup.task.objective), traces.committed_acc, traces.cost)
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


def train_static_baseline(
    setup: Setup, transfers: Transfers, *, fossil_blueprint: Array, algorithm: Array
) -> EpisodeTraces:
    """Train the final networks of held-out episodes from scratch, in their worlds, for the same minibatches.

    Shapes: fossil_blueprint int [n, S], blueprint of each fossil, -1 without one; algorithm int [n, S].  Placing the
    fossils takes one `plan` transfer more than an episode.
    """
    sets = held_out_instance_sets(setup.spec, len(fossil_blueprint))
    counts = [len(instances.tasks) for instances in sets]
    parts, control = list[TensorDict](), build_arm("wait", setup).control
    rows: list[Array] = np.split(np.stack((fossil_blueprint, algorithm)), np.cumsum(counts)[:-1], axis=1)
    for instances, fossils in zip(sets, rows, strict=True):
        own = setup.exchange.places(len(instances.tasks))
        kept = torch.as_tensor(fossils, device=setup.device)[:, own.to(setup.device)].unbind()
        with instances.choose(own).open(setup, transfers, control) as env, torch.no_grad():
            parts.append(run_episodes(env, *start_with_fossils(env, instances.episode, *kept)))
    return fetch_all_traces(setup.exchange, transfers, parts, counts)


def first_epoch_at_cost(traces: EpisodeTraces, cost: Array) -> Array:
    """First epoch at whose end `cost` parameter-epochs were spent, or else the last epoch.  int [n]."""
    enough = traces.cost >= cost
    return np.where(enough.any(axis=0), enough.argmax(axis=0), len(enough) - 1)


def start_with_fossils(
    env: Environment, episode: int, blueprint: Tensor, algorithm: Tensor
) -> tuple[EnvState, PolicyInputs]:
    """Envs of an episode with fossils from the start, measured.  blueprint, algorithm int64 [E, S]."""
    setup, born = env.setup, blueprint > 0
    fresh = env.init_state(torch.full_like(env.keys[:, 0], episode + env.split.first_episode))
    state = place_fossils(fresh, blueprint, algorithm)
    coalitions = phases.requested_coalitions(state, env.keys, setup=setup)
    plan = env.read_plan(phases.count_pieces(state.slots, *coalitions, born, setup=setup), state)
    return env.start(phases.init_new_seeds(state, born, env.keys, plan, setup=setup), plan)


REPLAYS: dict[str, ArmPlayer] = {
    SCHEDULE: play_schedule_arm,
    STATIC: play_static_arm,
    STATIC_COST: play_static_cost_arm,
    STATIC_PARAMS: play_static_params_arm,
}
