"""Who plays in an evaluation: one table from a name to how it is played."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from morphogen.run.evaluate import Result, play
from morphogen.run.fences import Fences
from morphogen.run.policies import TRAINED, arm_of
from morphogen.run.setup import Setup
from morphogen.vocab.fields import refuse
from morphogen.vocab.spec import POLICIES, SCHEDULE_FILE
from morphogen.vocab.text import show

# Setup, crossings, episodes, and the results so far, the policy of the run first -> result.
Player = Callable[[Setup, Fences, int, Mapping[str, Result]], Result]


def named(
    name: str, setup: Setup, fences: Fences, episodes: int, known: Mapping[str, Result], *, label: str | None = None
) -> Result:
    """The arm behind a name, on held-out instances; it needs to know of nobody else."""
    del known
    return play(setup, fences, arm_of(name, setup), name=label or name, episodes=episodes)


PLAYERS: dict[str, Player] = {name: partial(named, name) for name in POLICIES if name != "ppo"}
PREFIXES = (SCHEDULE_FILE, TRAINED)


def players(names: Iterable[str], setup: Setup) -> dict[str, Player]:
    """How those of these names are played, in their order; a ConfigError tells every name that nobody has.

    What is behind them is opened once now, so that what is wrong with a file is told before anybody plays.
    """
    asked = dict.fromkeys(names)
    refuse([_unknown(name) for name in asked if name not in PLAYERS and not name.startswith(PREFIXES)])
    for name in asked:
        if name in POLICIES or name.startswith(PREFIXES):
            arm_of(name, setup)
    return {name: PLAYERS.get(name, partial(named, name)) for name in asked}


def _unknown(name: str) -> str:
    return f"--arms has {show(name)}; want {', '.join(PLAYERS)}, {SCHEDULE_FILE}FILE or {TRAINED}PATH"
