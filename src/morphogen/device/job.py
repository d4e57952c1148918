"""Job: the ranks of a run as the environment names them, in the variables that `torchrun` sets.  No torch."""

import os
from collections.abc import Mapping

from morphogen.errors import RankError


def ranks_of_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return (rank, ranks) of this process; (0, 1) outside of a job.  Raises: RankError for invalid numbers."""
    texts = environment.get("RANK", "0"), environment.get("WORLD_SIZE", "1")
    try:
        rank, ranks = map(int, texts)
    except ValueError:
        rank, ranks = -1, 0
    if not 0 <= rank < ranks:
        raise RankError(f"RANK and WORLD_SIZE: expected 0 <= RANK < WORLD_SIZE, got {texts[0]!r} and {texts[1]!r}")
    return rank, ranks


def restarts_of_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return how often `torchrun` has restarted the ranks, and how often it may."""
    count, most = (environment.get(f"TORCHELASTIC_{name}", "0") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return int(count), int(most)


def local_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the place of this process among the ranks on this machine."""
    return int(environment.get("LOCAL_RANK", "0"))
