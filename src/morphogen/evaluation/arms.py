"""Arms of an evaluation by name: policies, and arms that packages offer (`config.parts.ARMS`)."""

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


def policy_prefixes() -> tuple[str, ...]:
    """Return the texts before the file of a policy in the name of an arm."""
    return (*(f"{kind}:" for kind in FILE_POLICIES), TRAINED_PREFIX)


def drop_line(line: str) -> None:
    """Receive a line of progress and drop it."""


@dataclass(frozen=True, slots=True)
class PlayContext:
    """Networks and transfers that all arms of an evaluation share."""

    setup: Setup
    transfers: Transfers
    report: Report = drop_line


# Receives the context, the number of held-out episodes, and the results so far.
ArmPlayer = Callable[[PlayContext, int, Mapping[str, ArmResult]], ArmResult]
# receives the text after the colon in the name of an arm, or ""
ArmBuilder = Callable[[str, Setup], ArmPlayer]


def policy_player(arm: Arm, name: str) -> ArmPlayer:
    """Return the player of a policy, whose results have this name."""

    def play_policy(
        context: PlayContext, episodes: int, results: Mapping[str, ArmResult]
    ) -> ArmResult:
        del results
        return play_arm(context.setup, context.transfers, arm, name=name, episodes=episodes)

    return play_policy


def without_argument(name: str, player: ArmPlayer) -> ArmBuilder:
    """Return the builder of an arm whose name has no argument."""

    def build(argument: str, setup: Setup) -> ArmPlayer:
        del setup
        if argument:
            raise ConfigError(f"arms: expected {name}, got {name}:{argument}")
        return player

    return build


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
    for name, player in open_arms(names, env.setup).items():
        played[name] = player(context, count, played)
    return played


def open_arms(names: Iterable[str], setup: Setup) -> dict[str, ArmPlayer]:
    """Return the players of these names, in their order; raise ConfigError with every unknown name.

    Files are read once, here, so that their errors are reported before any arm is played.
    """
    known = [*POLICIES, *ARMS]
    prefixes = policy_prefixes()
    allowed = ", ".join([*known, *(f"{prefix}FILE" for prefix in prefixes)])
    wanted = list(dict.fromkeys(names))
    offered = {
        name: name.partition(":")
        for name in wanted
        if name not in POLICIES and not name.startswith(prefixes)
    }
    unknown = [name for name, (part, _, _) in offered.items() if part not in ARMS]
    raise_all([f"arms: expected {allowed}, got {format_choice(name, known)}" for name in unknown])
    players: dict[str, ArmPlayer] = {}
    for name in wanted:
        if name in offered:
            part, _, argument = offered[name]
            players[name] = ARMS[part](argument, setup)
        else:
            players[name] = policy_player(build_arm(name, setup), name)
    return players
