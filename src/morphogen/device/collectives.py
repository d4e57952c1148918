"""Collectives: all that the processes of a run, its ranks, exchange; each is declared, counted and timed.

Rank w of W owns the envs from w E / W to (w + 1) E / W.  Nothing is exchanged inside an epoch.  A run of one process
has the same code with `Collectives`, which exchanges nothing.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from morphogen.device.transfers import BufferLayout
from morphogen.errors import RankError

Array = np.ndarray[Any, Any]
FACT_BYTES = 4_096  # of a JSON value that ranks exchange, padded
CHECKSUM_BYTES = 8
STOP, SAVE = "stop", "save"  # wishes that ranks fulfil together between two epochs


class Collective(NamedTuple):
    """One row of the table of collectives."""

    operation: str
    when: str
    content: str
    """That each rank contributes."""


COLLECTIVES = {
    "rollout": Collective("all-gather", "round, `engine.reduce` gather", "rows [T, E / W] and the memory after them"),
    "record": Collective("all-gather", "round", "columns of the record of the round, [T, E / W]"),
    "moments": Collective("all-gather", "round, `engine.reduce` allreduce", "counts, means and squares of the rows"),
    "gradient": Collective("all-reduce", "minibatch, `engine.reduce` allreduce", "flat gradient, sums of the losses"),
    "metrics": Collective("all-gather", "round, `engine.reduce` allreduce", "metrics of the minibatches"),
    "verdict": Collective("all-gather", "round", "int64: checksum of the policy"),
    "facts": Collective("all-gather", "start, save, evaluation", f"a JSON value in {FACT_BYTES} bytes"),
    "result": Collective("all-gather", "evaluation of a policy", "traces of its episodes"),
}


class Exchanged(NamedTuple):
    """Entry of the ledger of collectives."""

    calls: int = 0
    sent: int = 0  # bytes that this rank contributed


def expected_exchange(
    *, rounds: int, rollout: int, record: int, facts: int = 0, results: int = 0, result: int = 0
) -> dict[str, Exchanged]:
    """Compute the ledger of a rank under `engine.reduce` gather from the table: name -> calls and bytes.

    Args:
        rollout, record: bytes of the rows, and of the columns, of a round of this rank.
        facts: exchanges of facts.
        results, result: evaluations of a policy, and the bytes of its traces.
    """
    return {
        "rollout": Exchanged(rounds, rounds * rollout),
        "record": Exchanged(rounds, rounds * record),
        "moments": Exchanged(),
        "gradient": Exchanged(),
        "metrics": Exchanged(),
        "verdict": Exchanged(rounds, rounds * CHECKSUM_BYTES),
        "facts": Exchanged(facts, facts * FACT_BYTES),
        "result": Exchanged(results, results * result),
    }


class Collectives:
    """Exchange between the ranks of a run; this class is that of one process, and the base of all others.

    Attributes: rank, from 0; ranks, their number; ledger, what was exchanged by name; waited_s, seconds so far.
    """

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self.rank, self.ranks = rank, ranks
        self.ledger = dict.fromkeys(COLLECTIVES, Exchanged())
        self.waited_s = 0.0

    def shard(self, count: int) -> range:
        """Return the part of `count` envs, or of other rows, that this rank owns.  Raises: RankError if uneven."""
        if count % self.ranks:
            raise RankError(f"engine.ranks: expected a divisor of {count:,} envs, got {self.ranks}")
        size = count // self.ranks
        return range(self.rank * size, (self.rank + 1) * size)

    def gather(self, name: str, leaves: Mapping[str, Tensor], dim: int) -> dict[str, Tensor]:
        """Return the leaves of all ranks, joined along `dim` in the order of ranks.  All ranks pass equal shapes."""
        if self.ranks == 1:
            return dict(leaves)
        layout = BufferLayout.of(leaves)
        device = next(iter(leaves.values())).device
        buffer = torch.empty(layout.size, dtype=torch.uint8, device=device)
        layout.pack(leaves, buffer)
        return _join_shards(layout, self.exchange(name, buffer), dim)

    def gather_arrays(self, name: str, arrays: Mapping[str, Array], axis: int) -> dict[str, Array]:
        """Return the arrays of all ranks, joined along `axis` in the order of ranks."""
        if self.ranks == 1:
            return dict(arrays)
        leaves = {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}
        return {key: leaf.numpy() for key, leaf in self.gather(name, leaves, axis).items()}

    def gather_facts(self, fact: Any) -> list[Any]:
        """Return the JSON values of all ranks, in order.  Raises: ValueError for one of more than `FACT_BYTES`."""
        text = json.dumps(fact).encode()
        if len(text) > FACT_BYTES:
            raise ValueError(f"fact: expected at most {FACT_BYTES} bytes, got {len(text)}")
        if self.ranks == 1:
            return [json.loads(text)]
        buffer = torch.tensor([*text.ljust(FACT_BYTES)], dtype=torch.uint8, device="cpu")
        return [json.loads(bytes(row.tolist())) for row in self.exchange("facts", buffer)]

    def broadcast(self, fact: Any) -> Any:
        """Return the JSON value of rank 0."""
        return self.gather_facts(fact)[0]

    def exchange(self, name: str, buffer: Tensor) -> Tensor:
        """Return the buffers of all ranks.  uint8 [n] -> uint8 [W, n]."""
        del name
        return buffer.unsqueeze(0)

    def all_reduce(self, name: str, values: Tensor) -> Tensor:
        """Return the sum over the ranks, same shape.  float [...]."""
        del name
        return values

    def agree(self, wish: str | None, round: int, epoch: int) -> str | None:
        """Return the wish that all ranks fulfil before this epoch; None: they go on.

        A wish of any rank is fulfilled by all ranks before the same epoch of the round, or after the round.
        """
        del round, epoch
        return wish

    def close_round(self, round: int) -> str | None:
        """Return a wish that is to be fulfilled after this round; wishes of the round come too late from here on."""
        del round
        return None

    def claim(self, what: str) -> bool:
        """Return True for the first rank that asks for it; for all if no rank can be asked any more."""
        del what
        return True

    def close(self) -> None:
        """Leave the ranks."""


def _join_shards(layout: BufferLayout, rows: Tensor, dim: int) -> dict[str, Tensor]:
    """Join the leaves of packed buffers.  rows uint8 [W, n]."""
    joined, start = dict[str, Tensor](), 0
    for name, dtype, shape in layout.leaves:
        size = dtype.itemsize * torch.Size(shape).numel()
        leaves = rows[:, start : start + size].contiguous().view(dtype).view(len(rows), *shape)
        joined[name] = torch.cat(leaves.unbind(0), dim=dim)
        start += size
    return joined
