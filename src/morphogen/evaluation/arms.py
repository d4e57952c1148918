"""Arms of an evaluation by name: policies, and arms that packages offer (`config.parts.ARMS`)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from morphogen.config.fields import raise_all
from morphogen.config.parts import ARMS, FILE_POLICIES, POLICIES
from morphogen.data.instances import HELD_OUT_INSTANCES
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment
from morphogen.env.policies import TRAINED_PREFIX, Arm, build_arm
from morphogen.env.setup import Setup
from morphogen.errors import ConfigError
from morphogen.evaluation.play import ArmResult, play_arm
from morphogen.vocab.plain import read_count
from morphogen.vocab.text import format_choice

Report = Callable[[str], None]  # receives lines of progress


def drop_line(line: str) -> None:
    """Receive a line of progress and drop it."""


@dataclass(frozen=True, slots=True)
class PlayContext:
    """Networks and transfers that all arms of an evaluation share."""

    setup: Setup
    transfers: Transfers
    report: Report = drop_line


def open_context(setup: Setup, report: Report) -> PlayContext:
    """Return the context of an evaluation with transfers of its own."""
    return PlayContext(setup, Transfers(setup.device, time.perf_counter), report)


# Receives the context, the number of held-out episodes, and the results so far.
ArmPlayer = Callable[[PlayContext, int, Mapping[str, ArmResult]], ArmResult]


def policy_player(arm: Arm, name: str) -> ArmPlayer:
    """Return the player of a policy, whose results have this name."""

    def play_policy(
        context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
    ) -> ArmResult:
        del results
        return play_arm(context.setup, context.transfers, arm, name=name, episodes=episodes)

    return play_policy


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
        names: policies, `reactive:FILE`, `trained:PATH`, and policies of files and arms that
            packages offer, such as `static`, which trains the networks of the first result from
            scratch.
        results: arms that have played the same episodes, by name; None: none have.
        episodes: number of episodes; None: one per env.

    Returns: the results, with the given ones first.
    Raises: ConfigError for unknown names, and for an environment with other instances.

    Example:
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=4, seed=0, instances="held-out")
        >>> results = mg.play_arms(env, ("wait", "random"))
        >>> {name: round(float(result.network_value.mean()), 3) for name, result in results.items()}
        {'wait': 0.075, 'random': -0.002}
    """
    if env.split is not HELD_OUT_INSTANCES:
        raise ConfigError(f"env: expected one with held-out instances, got {env.split.label}")
    played = dict(results or {})
    count = env.envs if episodes is None else read_count("episodes", episodes)
    context = PlayContext(env.setup, env.transfers)
    play_each(context, open_arms(names, env.setup), played, count)
    return played


def play_each(
    context: PlayContext,
    players: Mapping[str, ArmPlayer],
    results: dict[str, ArmResult],
    episodes: int,
) -> None:
    """Add the result of each arm by its name, and report it."""
    for name, player in players.items():
        results[name] = player(context, episodes, results)
        context.report(f"{name}: {episodes} episodes in {results[name].seconds:.1f} s")


def open_arms(names: Iterable[str], setup: Setup) -> dict[str, ArmPlayer]:
    """Return the players of these names, in their order; raise ConfigError with every unknown name.

    Files are read once, here, so that their errors are reported before any arm is played.
    """
    known = [*POLICIES, *ARMS]
    prefixes = (*(f"{kind}:" for kind in FILE_POLICIES), TRAINED_PREFIX)
    allowed = ", ".join([*known, *(f"{prefix}FILE" for prefix in prefixes)])
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known and not name.startswith(prefixes)]
    raise_all([f"arms: expected {allowed}, got {format_choice(name, known)}" for name in unknown])
    return {
        name: ARMS[name] if name in ARMS else policy_player(build_arm(name, setup), name)
        for name in wanted
    }
