"""Oracle: for each instance the best of the schedules of earlier arms, found in siblings of its
world.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from morphogen.config.spec import build_limits
from morphogen.env.episodes import Array, EpisodeTraces
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import PlayContext
from morphogen.evaluation.play import ArmResult
from morphogen.extras.schedules.action_schedule import Schedule
from morphogen.extras.schedules.schedule_control import load_policy
from morphogen.extras.search.candidates import build_schedule
from morphogen.extras.search.instance_sets import (
    held_out_instance_sets,
    play_schedules,
    score_schedules,
    traces_arm,
)

PREFIX = "schedule:"  # of the name of an arm that plays a file
WORLDS = (1, 2)  # siblings of its world in which the schedules of an instance are compared


def play_best_schedules(
    context: PlayContext,
    schedules: Sequence[Schedule],
    episodes: int,
    *,
    worlds: Sequence[int] = WORLDS,
) -> tuple[Array, EpisodeTraces]:
    """Play each held-out instance under the schedule with the best mean in siblings of its world.

    The pick is played in a world where it was never tried, to avoid selection bias.
    Returns: index of the schedule of each episode, int [n], and the traces.
    """
    picks: list[Array] = []
    for instances in held_out_instance_sets(context.setup.spec, episodes):
        values = score_schedules(context, schedules, instances, worlds=worlds)
        picks.append(values.mean(axis=1).argmax(axis=0))
    pick = np.concatenate(picks)
    return pick, play_schedules(context, [schedules[i] for i in pick.tolist()])


def _play_oracle(
    context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
) -> EpisodeTraces:
    spec = context.setup.spec
    files = [name.removeprefix(PREFIX) for name in results if name.startswith(PREFIX)]
    if not files:
        raise ConfigError(f"arms: expected arms {PREFIX}FILE before oracle, got none")
    schedules = [load_policy(file, spec, build_limits(spec)).schedule for file in files]
    for schedule in schedules:
        if any(step.env is not None for step in schedule.steps):
            wanted = "schedules whose steps are for every env, got a step that names one"
            raise ConfigError(f"oracle, schedule {schedule.name}: expected {wanted}")
    return play_best_schedules(context, [build_schedule((), spec), *schedules], episodes)[1]


play_oracle_arm = traces_arm("oracle", _play_oracle)
