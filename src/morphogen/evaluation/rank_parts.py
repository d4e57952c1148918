"""Parts of an evaluation: every rank plays a part of each group of episodes, and all ranks join the traces of all."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.device.collectives import Collectives
from morphogen.device.transfers import Transfers
from morphogen.engine.episodes import EPOCH_TRACES, EpisodeTraces, fetch_traces

Array = np.ndarray[Any, Any]
ONE_PROCESS = Collectives()
LEAST_ROWS = 2  # a product of one row may be rounded in another way than that of several


def part_size(count: int, ranks: int) -> int:
    """Return the episodes that each rank plays of a group; what exceeds the group is dropped when parts are joined."""
    return min(count, max(LEAST_ROWS, -(-count // ranks)))


def own_part(count: int, collectives: Collectives) -> Tensor:
    """Return the places of this rank in a group of `count`, int64 [n]; places beyond its end begin it again."""
    size = part_size(count, collectives.ranks)
    return torch.arange(collectives.rank * size, (collectives.rank + 1) * size, device="cpu") % count


def joined_places(counts: Sequence[int], ranks: int) -> Array:
    """Return where the episodes of groups are, in order, among the parts of all ranks, one rank after the other."""
    sizes = [part_size(count, ranks) for count in counts]
    starts, places = np.cumsum([0, *sizes]), list[Array]()
    for count, size, start in zip(counts, sizes, starts, strict=False):
        episode = np.arange(count)
        places.append(episode // size * starts[-1] + start + episode % size)
    return np.concatenate(places)


def fetch_all_traces(
    transfers: Transfers,
    parts: Sequence[TensorDict],
    counts: Sequence[int],
    *,
    collectives: Collectives,
    episodes: int | None = None,
) -> EpisodeTraces:
    """Fetch the traces of the parts that this rank played of groups of `counts`; return those of all ranks, in order.

    episodes: the first ones to return; None: all.
    """
    if collectives.ranks == 1:
        return fetch_traces(transfers, parts, episodes)
    own, places = fetch_traces(transfers, parts), joined_places(counts, collectives.ranks)[:episodes]
    axes = {field.name: int(field.name in EPOCH_TRACES) for field in fields(own)}
    rows = {name: np.moveaxis(getattr(own, name), axis, 0).copy("C") for name, axis in axes.items()}
    joined = collectives.gather_arrays("result", rows, axis=0)
    whole = {name: np.moveaxis(joined[name][places], 0, axis) for name, axis in axes.items()}
    return EpisodeTraces(**{name: np.ascontiguousarray(array) for name, array in whole.items()})
