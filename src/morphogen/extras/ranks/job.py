"""Job: the ranks of a run, in the variables of the environment that `torchrun` sets.  No torch."""

import os

from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value


def ranks_of_environment() -> tuple[int, int]:
    """Return (rank, ranks) of this process; (0, 1) outside of a job.

    Raises: ConfigError for a variable of a job that is missing or invalid.
    """
    ranks = _read_number("WORLD_SIZE", "1")
    if ranks <= 1:
        return _read_number("RANK", "0", most=0), 1
    if not os.environ.get("MASTER_ADDR"):
        raise ConfigError("MASTER_ADDR: expected the address of rank 0, got nothing")
    _read_number("MASTER_PORT", "", most=65_535)
    return _read_number("RANK", "", most=ranks - 1), ranks


def restarts_of_environment() -> tuple[int, int]:
    """Return how often `torchrun` has restarted the ranks, and how often it may.

    Raises: ConfigError.
    """
    count = _read_number("TORCHELASTIC_RESTART_COUNT", "0")
    return count, _read_number("TORCHELASTIC_MAX_RESTARTS", "0")


def has_agent_store() -> bool:
    """Return whether the process that started the ranks serves their store, not rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def local_rank() -> int:
    """Return the place of this process among the ranks on this machine.  Raises: ConfigError."""
    return _read_number("LOCAL_RANK", "0")


def _read_number(name: str, default: str, most: int = 999_999_999) -> int:
    """Return the number in a variable; an empty one counts as unset.

    default: of a variable that is unset; "": it has to be set.
    """
    text = os.environ.get(name, "").strip() or default
    if not text.isdecimal() or len(text) > 9 or int(text) > most:
        got = format_value(text) if text else "nothing"
        raise ConfigError(f"{name}: expected an integer in 0 .. {most}, got {got}")
    return int(text)
