"""Who plays in an evaluation: one table from a name to how it is played."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from morphogen.config.fields import raise_all
from morphogen.config.spec import ORACLE, POLICIES, SCHEDULE_FILE, STATIC, STATIC_COST
from morphogen.device.transfers import Transfers
from morphogen.engine.episodes import Array, EpisodeTraces
from morphogen.engine.policies import TRAINED_PREFIX, Greedy, build_arm
from morphogen.engine.setup import Setup
from morphogen.evaluation.hindsight_oracle import oracle
from morphogen.evaluation.play import Result, play, result_of
from morphogen.evaluation.static_baseline import reached, replay
from morphogen.evaluation.successive_halving import read_portfolio
from morphogen.vocab.text import format_value

WORLDS = 2  # siblings of a world in which an oracle looks for the best schedule
# Setup, crossings, episodes, and the results so far, the policy of the run first -> result.
Player = Callable[[Setup, Transfers, int, Mapping[str, Result]], Result]


def named(
    name: str,
    setup: Setup,
    fences: Transfers,
    episodes: int,
    known: Mapping[str, Result],
    *,
    label: str | None = None,
    mode: bool = False,
) -> Result:
    """The arm behind a name, on held-out instances; it needs to know of nobody else.  `mode`: it acts greedily."""
    del known
    arm = build_arm(name, setup)
    arm = arm._replace(policy=Greedy(arm.policy)) if mode else arm
    return play(setup, fences, arm, name=label or name, episodes=episodes)


def static(setup: Setup, fences: Transfers, episodes: int, known: Mapping[str, Result]) -> Result:
    """The networks that the first arm ended with, trained from scratch for the same minibatches."""
    del episodes
    began, lives = time.perf_counter(), next(iter(known.values())).lives
    found = replay(setup, fences, kept=lives.fossil_blueprint, algorithm=lives.algorithm)
    return result_of(setup, found, name=STATIC, seconds=time.perf_counter() - began)


def static_cost(setup: Setup, fences: Transfers, episodes: int, known: Mapping[str, Result]) -> Result:
    """The same, stopped when as many parameter-epochs were spent as on the grown network."""
    grown = next(iter(known.values()))
    whole = known[STATIC] if STATIC in known else static(setup, fences, episodes, known)
    epoch = reached(whole.lives, grown.param_epochs)
    then = {name: np.take_along_axis(rows, epoch[None], axis=0)[0] for name, rows in _traces(whole.lives).items()}
    minibatches = (epoch + 1) * setup.spec.data.minibatches
    success = (then["committed_accuracy"] >= setup.task.success).astype(np.float64)
    return replace(whole, policy=STATIC_COST, success_share=success, minibatches=minibatches, **then)


def _traces(lives: EpisodeTraces) -> dict[str, Array]:
    return {
        "network_value": lives.network_value,
        "committed_accuracy": lives.committed_acc,
        "param_epochs": lives.cost,
    }


def hindsight(
    file: str, setup: Setup, fences: Transfers, episodes: int, known: Mapping[str, Result], *, worlds: int = WORLDS
) -> Result:
    """The best schedule of a portfolio for each instance, found in siblings of its world."""
    del known
    began = time.perf_counter()
    found = oracle(setup, fences, read_portfolio(Path(file), setup.spec), episodes=episodes, worlds=worlds)
    return result_of(setup, found.lives, name=f"{ORACLE}{file}", seconds=time.perf_counter() - began)


PLAYERS: dict[str, Player] = {
    **{name: partial(named, name) for name in POLICIES if name != "ppo"},
    STATIC: static,
    STATIC_COST: static_cost,
}
PREFIXES = (SCHEDULE_FILE, TRAINED_PREFIX, ORACLE)


def players(names: Iterable[str], setup: Setup) -> dict[str, Player]:
    """How those of these names are played, in their order; a ConfigError tells every name that nobody has.

    What is behind them is opened once now, so that what is wrong with a file is told before anybody plays.
    """
    asked = dict.fromkeys(names)
    raise_all([_unknown(name) for name in asked if name not in PLAYERS and not name.startswith(PREFIXES)])
    return {name: PLAYERS[name] if name in PLAYERS else _opened(name, setup) for name in asked}


def _opened(name: str, setup: Setup) -> Player:
    file = name.removeprefix(ORACLE)
    if file != name:
        read_portfolio(Path(file), setup.spec)
        return partial(hindsight, file)
    build_arm(name, setup)
    return partial(named, name)


def _unknown(name: str) -> str:
    return f"--arms has {format_value(name)}; want {', '.join(PLAYERS)}, {', '.join(f'{one}FILE' for one in PREFIXES)}"
