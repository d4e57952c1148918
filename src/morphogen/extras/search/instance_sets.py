"""Instances that schedules play: groups of an evaluation, and many schedules in one world."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.data.instances import HELD_OUT_INSTANCES, TRAINING_INSTANCES, InstanceSplit
from morphogen.env.action_control import ActionControl, TableControl
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import Array, EpisodeTraces, fetch_traces, run_episodes
from morphogen.env.phases import PolicyInputs
from morphogen.env.setup import Setup
from morphogen.evaluation.arms import ArmPlayer, PlayContext
from morphogen.evaluation.play import ArmResult, build_result
from morphogen.extras.schedules.action_schedule import Schedule
from morphogen.extras.schedules.schedule_control import build_tables
from morphogen.log.round_summary import running_value
from morphogen.policy.policy import Policy
from morphogen.state import rng
from morphogen.state.env import EnvState

ENVS_FACTOR = 4  # times the envs of a run that run together in a search

# receives places of episodes in an evaluation, int64 [n]
BuildControl = Callable[[Tensor], ActionControl | None]
# Receives the environment, the number of the episode in its split, and the places.
StartEpisode = Callable[[Environment, int, Tensor], tuple[EnvState, PolicyInputs]]


class InstanceSet(NamedTuple):
    """Instances of one episode for some envs."""

    split: InstanceSplit
    episode: int  # of the split
    tasks: Tensor  # int64 [n, 3], keys of the envs, on the CPU

    def choose(self, places: Tensor) -> "InstanceSet":
        """Return the instances at these places, int64 [n]."""
        return self._replace(tasks=self.tasks[places])

    def open(
        self, context: PlayContext, control: ActionControl | None = None, *, sibling: int = 0
    ) -> Environment:
        """Return the environment of these instances, in a sibling of their worlds."""
        return open_environment(
            context.setup,
            envs=rng.sibling_keys(self.tasks, sibling),
            tasks=self.tasks,
            split=self.split,
            control=control,
            transfers=context.transfers,
        )


def training_instances(spec: RunSpec, count: int) -> InstanceSet:
    """Training instances of the first round after the price warm-up."""
    return InstanceSet(
        TRAINING_INSTANCES, spec.ppo.price_warmup_rounds, rng.env_keys(spec.seed, 0, count)
    )


def held_out_instance_sets(spec: RunSpec, episodes: int) -> list[InstanceSet]:
    """Held-out instances of an evaluation, in the groups in which they are played."""
    key = rng.env_keys(spec.seed, 0, min(spec.envs, episodes))
    starts = range(0, episodes, len(key))
    return [
        InstanceSet(HELD_OUT_INSTANCES, i, key[: episodes - first])
        for i, first in enumerate(starts)
    ]


def play_held_out(
    context: PlayContext,
    episodes: int,
    control: BuildControl,
    *,
    chosen: Array | None = None,
    start: StartEpisode = lambda env, episode, _: env.reset(episode),
) -> EpisodeTraces:
    """Play held-out episodes in the groups of an evaluation, a part in each process.

    Args:
        episodes: number of episodes of the evaluation.
        control: builds the schedules or masks of episodes from their places.
        chosen: ascending places of the episodes to play, int [m]; None: all of them.
        start: starts the episodes of a group.
    """
    places = torch.as_tensor(np.arange(episodes) if chosen is None else chosen, device="cpu")
    parts: list[TensorDict] = []
    counts: list[int] = []
    first = 0
    for instances in held_out_instance_sets(context.setup.spec, episodes):
        last = first + len(instances.tasks)
        group = places[(places >= first) & (places < last)]
        if len(group):
            own = group[context.setup.exchange.places(len(group))]
            env = instances.choose(own - first).open(context, control(own))
            with env, torch.no_grad():
                parts.append(run_episodes(env, *start(env, instances.episode, own)))
            counts.append(len(group))
        first = last
    exchange = context.setup.exchange
    return fetch_traces(context.transfers, parts, exchange=exchange, counts=counts)


def build_schedules_control(schedules: Sequence[Schedule], setup: Setup) -> ActionControl:
    """Return the control under which each env has a schedule of its own."""
    columns = [schedule.steps for schedule in schedules]
    return TableControl(*build_tables(columns, setup.spec, setup.device))


def play_schedules(context: PlayContext, schedules: Sequence[Schedule]) -> EpisodeTraces:
    """Play each held-out episode of an evaluation under its own schedule."""

    def control(places: Tensor) -> ActionControl:
        return build_schedules_control([schedules[i] for i in places.tolist()], context.setup)

    return play_held_out(context, len(schedules), control)


def score_schedules(
    context: PlayContext,
    schedules: Sequence[Schedule],
    instances: InstanceSet,
    *,
    worlds: Sequence[int],
) -> Array:
    """Network value of every schedule on every instance, in siblings of its world.

    World 0 is the world of a run or an evaluation.
    Returns: float [K, len(worlds), n].
    """
    count = len(instances.tasks)
    # places in schedules x instances, flattened
    pairs = torch.arange(len(schedules) * count, device="cpu")
    repeated = [schedules[i] for i in (pairs // count).tolist()]
    values = score_pairs(context, repeated, instances.choose(pairs % count), worlds=worlds)
    return np.moveaxis(values.reshape(len(worlds), len(schedules), count), 0, 1)


def score_pairs(
    context: PlayContext,
    schedules: Sequence[Schedule],
    instances: InstanceSet,
    *,
    worlds: Sequence[int],
) -> Array:
    """Network value of a schedule on an instance, for pairs of them, in siblings of its world.

    schedules: one for each of the `instances`, which may contain an instance several times.
    Schedules that begin alike run together, because equal seeds in one slot cost less together.
    Returns: float [len(worlds), n].
    """
    actions = [[(step.action, step.epoch) for step in schedule.steps] for schedule in schedules]
    order = sorted(range(len(schedules)), key=actions.__getitem__)
    rows = ENVS_FACTOR * context.setup.spec.envs
    values = np.empty((len(worlds), len(schedules)))
    for row, sibling in zip(values, worlds, strict=True):
        for group in torch.tensor(order, dtype=torch.int64, device="cpu").split(rows):
            row[group.numpy()] = play_values(
                context,
                instances.choose(group),
                sibling,
                control=lambda places, group=group: build_schedules_control(
                    [schedules[i] for i in group[places].tolist()], context.setup
                ),
            )
    return values


def play_values(
    context: PlayContext,
    instances: InstanceSet,
    sibling: int,
    *,
    control: BuildControl = lambda _: None,
    policy: Policy | None = None,
) -> Array:
    """Network values of instances in a sibling of their worlds, a part in each process.

    Returns: float [n].
    """
    setup = context.setup
    count = len(instances.tasks)
    own = setup.exchange.places(count)
    env = instances.choose(own).open(context, control(own), sibling=sibling)
    with env, torch.no_grad():
        played = [run_episodes(env, *env.reset(instances.episode), policy)]
    traces = fetch_traces(context.transfers, played, exchange=setup.exchange, counts=[count])
    return running_value(traces.network_value, setup.task.objective)[-1]


def traces_arm(
    name: str, play: Callable[[PlayContext, int, Mapping[str, ArmResult]], EpisodeTraces]
) -> ArmPlayer:
    """Return the player of an arm that plays episodes, with their result and its time."""

    def play_traces(
        context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
    ) -> ArmResult:
        began = time.perf_counter()
        traces = play(context, episodes, results)
        seconds = time.perf_counter() - began
        return build_result(context.setup, traces, name=name, seconds=seconds)

    return play_traces
