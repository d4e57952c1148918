"""Arms of an evaluation: a table from names to players, the hindsight oracle and the clairvoyant."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from morphogen.config.action_schedule import Schedule
from morphogen.config.fields import raise_all
from morphogen.config.parts import POLICIES
from morphogen.config.spec import CLAIRVOYANT, ORACLE, SCHEDULE_FILE
from morphogen.data.instances import HELD_OUT_INSTANCES
from morphogen.device.transfers import Transfers
from morphogen.engine.action_control import build_per_env_control
from morphogen.engine.environment import Environment
from morphogen.engine.episodes import Array, EpisodeTraces, fetch_all_traces, run_episodes
from morphogen.engine.optimum import OPTIMAL, is_known
from morphogen.engine.policies import REACTIVE_PREFIX, TRAINED_PREFIX, build_arm, greedy_arm
from morphogen.engine.setup import Setup
from morphogen.errors import ConfigError
from morphogen.evaluation.clairvoyant import Report, no_report, search_along_phases
from morphogen.evaluation.play import ArmResult, build_result, play_arm
from morphogen.evaluation.replays import REPLAYS, ArmPlayer
from morphogen.evaluation.schedule_search import InstanceSet, build_schedule, held_out_instance_sets, score_schedules
from morphogen.evaluation.successive_halving import read_portfolio
from morphogen.vocab.paths import expand_path
from morphogen.vocab.plain import read_count
from morphogen.vocab.text import format_choice

ORACLE_WORLDS = 2  # sibling worlds in which the oracle searches
SEARCH_ROWS = 256  # envs side by side in a search


def play_policy_arm(
    name: str,
    setup: Setup,
    transfers: Transfers,
    episodes: int,
    results: Mapping[str, ArmResult],
    *,
    label: str | None = None,
    greedy: bool = False,
) -> ArmResult:
    """Play a named policy on held-out instances.  `greedy`: take the most likely actions; `results` has no effect."""
    del results
    arm = build_arm(name, setup)
    arm = greedy_arm(arm) if greedy else arm
    return play_arm(setup, transfers, arm, name=label or name, episodes=episodes)


@dataclass(frozen=True, slots=True)
class HindsightResult:
    """Schedule that was picked for each episode, and the traces of the episodes."""

    schedules: tuple[Schedule, ...]  # all candidates; the first one grows nothing
    pick: Array  # int [n], index of the candidate
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
    """Play each held-out instance under the schedule with the best mean in `worlds` siblings of its world.

    The pick is played in a world where it was never tried, so its value is not that of a lucky draw.
    """
    idle = build_schedule((), setup.spec)
    schedules = (idle, *(schedule for schedule in portfolio if schedule.sha256 != idle.sha256))
    sets, picks, parts = held_out_instance_sets(setup.spec, episodes), list[Array](), list[TensorDict]()
    for instances in sets:
        siblings: Any = {"worlds": range(1, worlds + 1), "rows": rows}
        values = score_schedules(setup, transfers, schedules, instances, **siblings)
        picks.append(values.mean(axis=1).argmax(axis=0))
    for instances, pick in zip(sets, picks, strict=True):
        chosen: list[Schedule] = [schedules[i] for i in pick.tolist()]
        parts.append(play_schedules(setup, transfers, chosen, instances))
    traces = fetch_all_traces(setup.exchange, transfers, parts, [len(pick) for pick in picks])
    return HindsightResult(schedules, np.concatenate(picks), traces)


def play_schedules(
    setup: Setup, transfers: Transfers, schedules: Sequence[Schedule], instances: InstanceSet
) -> TensorDict:
    """Play each instance under its own schedule, in the world of an evaluation; return the traces of a part."""
    own = setup.exchange.places(len(schedules))
    lines: list[Schedule] = [schedules[int(i)] for i in own]
    control = build_per_env_control(lines, range(len(lines)), setup.spec, setup.device)
    with instances.choose(own).open(setup, transfers, control) as env, torch.no_grad():
        return run_episodes(env, *env.reset(instances.episode))


def play_oracle_arm(
    file: str,
    setup: Setup,
    transfers: Transfers,
    episodes: int,
    results: Mapping[str, ArmResult],
    *,
    worlds: int = ORACLE_WORLDS,
) -> ArmResult:
    """Play the best schedule of a portfolio for each instance, searched in siblings of its world."""
    del results
    start_s, portfolio = time.perf_counter(), read_portfolio(expand_path(file), setup.spec)
    search: Any = {"episodes": episodes, "worlds": worlds}
    result = play_hindsight_oracle(setup, transfers, portfolio, **search)
    return build_result(setup, result.traces, name=f"{ORACLE}{file}", seconds=time.perf_counter() - start_s)


def play_clairvoyant_arm(
    setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult], *, report: Report = no_report
) -> ArmResult:
    """Play the best schedule along the phases of each instance, searched in siblings of its world."""
    del results
    began, parts = time.perf_counter(), list[TensorDict]()
    sets = held_out_instance_sets(setup.spec, episodes)
    for instances in sets:
        more: Any = {"rows": SEARCH_ROWS, "report": report}
        found = search_along_phases(setup, transfers, instances, **more)
        schedules = [build_schedule(line, setup.spec) for line in found.picks]
        parts.append(play_schedules(setup, transfers, schedules, instances))
    traces = fetch_all_traces(setup.exchange, transfers, parts, [len(one.tasks) for one in sets])
    return build_result(setup, traces, name=CLAIRVOYANT, seconds=time.perf_counter() - began)


ARM_PLAYERS: dict[str, ArmPlayer] = {**REPLAYS, CLAIRVOYANT: play_clairvoyant_arm}
ARM_PREFIXES = (SCHEDULE_FILE, REACTIVE_PREFIX, TRAINED_PREFIX, ORACLE)


def play_arms(
    env: Environment,
    names: Sequence[str],
    results: Mapping[str, ArmResult] | None = None,
    *,
    episodes: int | None = None,
) -> dict[str, ArmResult]:
    """Play several arms on the same held-out instances.

    Args:
        env: of `make(..., instances="held-out")`.
        names: policies, `schedule:FILE`, `reactive:FILE`, `trained:PATH`, `oracle:FILE`, `clairvoyant` (the
            best schedule along the phases of each instance), and replays of the first result: `schedule` repeats its
            actions, `static` trains its final networks from scratch, `static-cost` for as many parameter-epochs,
            `static-params` trains wider hosts of their size.
        results: arms that have played the same episodes, by name; None: none have.
        episodes: number of episodes; None: one per env.

    Returns: the results, those that were given first.
    Raises: ConfigError for unknown names, and for an environment with other instances.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("whitebox", envs=4, seed=0, instances="held-out")
        >>> results = mg.play_arms(env, ("wait", "random"))
        >>> {name: round(float(result.network_value.mean()), 3) for name, result in results.items()}
        {'wait': 0.2, 'random': 0.123}
    """
    if env.split is not HELD_OUT_INSTANCES:
        raise ConfigError(f"env: expected one with held-out instances, got {env.split.label}")
    played = dict(results or {})
    count = env.envs if episodes is None else read_count("episodes", episodes)
    for name, player in open_arms(names, env.setup).items():
        played[name] = player(env.setup, env.transfers, count, played)
    return played


def open_arms(names: Iterable[str], setup: Setup, report: Report = no_report) -> dict[str, ArmPlayer]:
    """Return the players of these names, in their order; raise ConfigError with every unknown name.

    Policies and portfolios are read once here, so that errors in files are reported before any arm is played.
    `report` receives a line in each step of a long search.
    """
    known = [*POLICIES, *([OPTIMAL] if is_known(setup) else ()), *ARM_PLAYERS]
    allowed = ", ".join([*known, *(f"{prefix}FILE" for prefix in ARM_PREFIXES)])
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known and not name.startswith(ARM_PREFIXES)]
    raise_all([f"arms: expected {allowed}, got {format_choice(name, known)}" for name in unknown])
    return {name: _open_arm(name, setup, report) for name in wanted}


def _open_arm(name: str, setup: Setup, report: Report) -> Any:
    if name == CLAIRVOYANT:
        return partial(play_clairvoyant_arm, report=report)
    if name in ARM_PLAYERS:
        return ARM_PLAYERS[name]
    if name.startswith(ORACLE):
        file = name.removeprefix(ORACLE)
        read_portfolio(expand_path(file), setup.spec)
        return partial(play_oracle_arm, file)
    build_arm(name, setup)
    return partial(play_policy_arm, name)
