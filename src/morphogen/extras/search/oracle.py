"""Oracle: for each instance the best schedule of a portfolio, found in siblings of its world."""

from collections.abc import Sequence

import numpy as np

from morphogen.env.episodes import Array, EpisodeTraces
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import ArmPlayer, PlayContext
from morphogen.extras.schedules.action_schedule import Schedule
from morphogen.extras.search.candidates import build_schedule
from morphogen.extras.search.instance_sets import (
    held_out_instance_sets,
    play_schedules,
    score_schedules,
    traces_arm,
)
from morphogen.extras.search.successive_halving import read_portfolio
from morphogen.vocab.paths import expand_path

WORLDS = 2  # siblings of its world in which the schedules of an instance are compared


def play_hindsight_oracle(
    context: PlayContext, portfolio: Sequence[Schedule], *, episodes: int, worlds: int = WORLDS
) -> tuple[Array, EpisodeTraces]:
    """Play each held-out instance under the schedule with the best mean in siblings of its world.

    Returns: index of the schedule of each episode, int [n], and the traces; schedule 0 grows
    nothing; the others are the schedules of the portfolio that grow something.
    The pick is played in a world where it was never tried, to avoid selection bias.
    """
    spec = context.setup.spec
    idle = build_schedule((), spec)
    schedules = (idle, *(schedule for schedule in portfolio if schedule.sha256 != idle.sha256))
    picks: list[Array] = []
    for instances in held_out_instance_sets(spec, episodes):
        values = score_schedules(context, schedules, instances, worlds=range(1, worlds + 1))
        picks.append(values.mean(axis=1).argmax(axis=0))
    pick = np.concatenate(picks)
    traces = play_schedules(context, [schedules[i] for i in pick.tolist()])
    return pick, traces


def build_oracle(argument: str, setup: Setup) -> ArmPlayer:
    """Return the player of the oracle with the portfolio of a file.

    Raises: ConfigError for a missing name of a file, and for an invalid file.
    """
    if not argument:
        raise ConfigError("arms: expected oracle:FILE, got oracle")
    portfolio = read_portfolio(expand_path(argument), setup.spec)
    return traces_arm(
        f"oracle:{argument}",
        lambda context, episodes, _: play_hindsight_oracle(context, portfolio, episodes=episodes)[
            1
        ],
    )
