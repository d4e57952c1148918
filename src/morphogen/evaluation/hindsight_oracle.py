"""The hindsight oracle: the best of some schedules for each held-out instance, found in worlds other than its own."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.config.action_schedule import Schedule
from morphogen.device.transfers import Transfers
from morphogen.engine.action_control import build_per_env_control
from morphogen.engine.episodes import Array, EpisodeTraces, fetch_traces, rollout_on_device
from morphogen.engine.epoch import VectorEnv
from morphogen.engine.setup import Setup
from morphogen.evaluation.schedule_search import InstanceSet, build_schedule, held_out_instance_sets, score_schedules


@dataclass(frozen=True, slots=True)
class HindsightResult:
    """Picked schedule of each episode, and its traces."""

    schedules: tuple[Schedule, ...]  # that were tried; the first one grows nothing
    pick: Array  # int [n], which of them
    traces: EpisodeTraces


def play_hindsight_oracle(
    setup: Setup,
    transfers: Transfers,
    portfolio: Sequence[Schedule],
    *,
    episodes: int,
    worlds: int = 2,
    rows: int = 256,
) -> HindsightResult:
    """Held-out episodes under the schedule that is best, on the mean, in `worlds` siblings of their own world.

    The pick is played in the world itself, where it was never tried: so its value is not that of a lucky draw.
    """
    idle = build_schedule((), setup.spec)
    tried = (idle, *(one for one in portfolio if one.sha256 != idle.sha256))
    grounds = held_out_instance_sets(setup.spec, episodes)
    siblings = range(1, worlds + 1)
    picks = [
        score_schedules(setup, transfers, tried, ground, worlds=siblings, rows=rows).mean(axis=1).argmax(axis=0)
        for ground in grounds
    ]
    lives = [_play_picks(setup, transfers, tried, ground, pick) for ground, pick in zip(grounds, picks, strict=True)]
    return HindsightResult(tried, np.concatenate(picks), fetch_traces(transfers, lives))


def _play_picks(
    setup: Setup, transfers: Transfers, schedules: Sequence[Schedule], instances: InstanceSet, pick: Array
) -> TensorDict:
    control = build_per_env_control(schedules, pick.tolist(), setup.spec, setup.device)
    world = VectorEnv(setup, transfers, instances=instances.purpose, envs=instances.tasks, control=control)
    with closing(world), torch.no_grad():
        return rollout_on_device(world, world.reset(instances.episode))
