"""Arms of an evaluation: one table from a name to its player."""

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
from morphogen.evaluation.hindsight_oracle import play_hindsight_oracle
from morphogen.evaluation.play import ArmResult, build_result, play
from morphogen.evaluation.static_baseline import first_epoch_at_cost, train_static_baseline
from morphogen.evaluation.successive_halving import read_portfolio
from morphogen.vocab.text import format_value

ORACLE_WORLDS = 2  # siblings of a world in which an oracle looks for the best schedule
# Setup, crossings, episodes, and the results so far, the policy of the run first -> result.
ArmPlayer = Callable[[Setup, Transfers, int, Mapping[str, ArmResult]], ArmResult]


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
    """The arm behind a name, on held-out instances; it needs to know of nobody else.  `mode`: it acts greedily."""
    del results
    arm = build_arm(name, setup)
    arm = arm._replace(policy=Greedy(arm.policy)) if greedy else arm
    return play(setup, transfers, arm, name=label or name, episodes=episodes)


def play_static_arm(setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]) -> ArmResult:
    """The networks that the first arm ended with, trained from scratch for the same minibatches."""
    del episodes
    began, lives = time.perf_counter(), next(iter(results.values())).traces
    found = train_static_baseline(setup, transfers, fossil_blueprint=lives.fossil_blueprint, algorithm=lives.algorithm)
    return build_result(setup, found, name=STATIC, seconds=time.perf_counter() - began)


def play_static_cost_arm(
    setup: Setup, transfers: Transfers, episodes: int, results: Mapping[str, ArmResult]
) -> ArmResult:
    """The same, stopped when as many parameter-epochs were spent as on the grown network."""
    grown = next(iter(results.values()))
    whole = results[STATIC] if STATIC in results else play_static_arm(setup, transfers, episodes, results)
    epoch = first_epoch_at_cost(whole.traces, grown.param_epochs)
    then = {
        name: np.take_along_axis(rows, epoch[None], axis=0)[0] for name, rows in _per_epoch_values(whole.traces).items()
    }
    minibatches = (epoch + 1) * setup.spec.data.minibatches
    success = (then["committed_accuracy"] >= setup.task.success).astype(np.float64)
    return replace(whole, policy=STATIC_COST, success_share=success, minibatches=minibatches, **then)


def _per_epoch_values(traces: EpisodeTraces) -> dict[str, Array]:
    return {
        "network_value": traces.network_value,
        "committed_accuracy": traces.committed_acc,
        "param_epochs": traces.cost,
    }


def play_oracle_arm(
    file: str,
    setup: Setup,
    transfers: Transfers,
    episodes: int,
    results: Mapping[str, ArmResult],
    *,
    worlds: int = ORACLE_WORLDS,
) -> ArmResult:
    """The best schedule of a portfolio for each instance, found in siblings of its world."""
    del results
    began = time.perf_counter()
    found = play_hindsight_oracle(
        setup, transfers, read_portfolio(Path(file), setup.spec), episodes=episodes, worlds=worlds
    )
    return build_result(setup, found.traces, name=f"{ORACLE}{file}", seconds=time.perf_counter() - began)


ARM_PLAYERS: dict[str, ArmPlayer] = {
    **{name: partial(play_policy_arm, name) for name in POLICIES if name != "ppo"},
    STATIC: play_static_arm,
    STATIC_COST: play_static_cost_arm,
}
ARM_PREFIXES = (SCHEDULE_FILE, TRAINED_PREFIX, ORACLE)


def open_arms(names: Iterable[str], setup: Setup) -> dict[str, ArmPlayer]:
    """Return the players of these names, in their order; raise ConfigError with every unknown name.

    What is behind them is opened once now, so that what is wrong with a file is told before anybody plays.
    """
    asked = dict.fromkeys(names)
    raise_all(
        [_describe_unknown_arm(name) for name in asked if name not in ARM_PLAYERS and not name.startswith(ARM_PREFIXES)]
    )
    for name in asked.keys() & POLICIES.keys():
        build_arm(name, setup)
    return {name: ARM_PLAYERS[name] if name in ARM_PLAYERS else _open_arm(name, setup) for name in asked}


def _open_arm(name: str, setup: Setup) -> ArmPlayer:
    file = name.removeprefix(ORACLE)
    if file != name:
        read_portfolio(Path(file), setup.spec)
        return partial(play_oracle_arm, file)
    build_arm(name, setup)
    return partial(play_policy_arm, name)


def _describe_unknown_arm(name: str) -> str:
    expected = ", ".join([*ARM_PLAYERS, *(f"{prefix}FILE" for prefix in ARM_PREFIXES)])
    return f"--arms has {format_value(name)}; want {expected}"
