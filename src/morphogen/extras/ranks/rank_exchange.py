"""Exchange between the ranks of a run: every collective is declared in a table and counted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.execution_spec import REDUCE_ALLREDUCE, REDUCE_GATHER
from morphogen.config.spec import RunSpec
from morphogen.device.transfers import flatten_names
from morphogen.env.episodes import Rollout
from morphogen.errors import ConfigError, RankError
from morphogen.extras.ranks.agreement import ERRORS, first_error, mark_common, name_ranks
from morphogen.extras.ranks.shards import join_envs, take_envs
from morphogen.hosts.flat_params import flatten_leaves, split_leaves
from morphogen.ppo.exchange import ALONE, A, Array, Exchange
from morphogen.ppo.learner import Learner
from morphogen.state.tree_ops import get_leaves

T = TypeVar("T")
LEAST_ROWS = 2  # of a rank in an evaluation: a product of one row may be rounded in another way


# name, operation: when, mode of `engine.reduce` if only one, and the contribution of each rank
COLLECTIVES = (
    "rollout",  # all-gather: round, gather; rows [T, E / W] and the memory after them
    "record",  # all-gather: round, save; columns of the record of the round, [T, E / W]
    "moments",  # all-gather: round, allreduce; counts, means and squares of the rows
    "metrics",  # all-gather: round, allreduce; extremes of the metrics of the minibatches
    "gradient",  # all-reduce: minibatch, allreduce; row counts; flat gradient and losses
    "episodes",  # all-gather: evaluation of a policy; traces of its episodes
    "facts",  # all-gather: epoch, round, start, save, evaluation; a small value
    "envs",  # gather: save; state of the envs of the rank
)


class Exchanged(NamedTuple):
    """Entry of the ledger of collectives."""

    calls: int = 0
    sent: int = 0  # bytes of tensors that this rank contributed


class RankExchange(Exchange, ABC):
    """Exchange of one rank; a subclass provides the collectives.

    Attributes: rank, from 0; ranks, their number; ledger, what was exchanged by name.
    """

    recordable = False

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self.first = rank == 0
        self.ledger: dict[str, Exchanged] = dict.fromkeys(COLLECTIVES, Exchanged())

    @abstractmethod
    def gather_bytes(self, name: str, buffer: Tensor) -> Tensor:
        """Return the buffers of all ranks.  uint8 [n] -> uint8 [W, n]."""

    @abstractmethod
    def add(self, name: str, values: Tensor) -> Tensor:
        """Return the sum over the ranks, same shape.  float [...]."""

    @abstractmethod
    def gather_objects(self, name: str, value: T, *, to_first: bool = False) -> list[T]:
        """Return the plain values of all ranks, in order.

        to_first: only rank 0 receives them.
        """

    def count(self, name: str, sent: int = 0) -> None:
        """Enter a collective into the ledger."""
        entry = self.ledger[name]
        self.ledger[name] = Exchanged(entry.calls + 1, entry.sent + sent)

    def own(self, count: int) -> range:
        """Return the envs of this rank.  Raises: RankError if the ranks do not divide them."""
        if count % self.ranks:
            raise RankError(f"engine.ranks: expected a divisor of {count:,} envs, got {self.ranks}")
        size = count // self.ranks
        return range(self.rank * size, (self.rank + 1) * size)

    def join(self, name: str, leaves: Mapping[str, A], axis: int) -> dict[str, A]:
        """Return the leaves of all ranks, joined along an axis in the order of ranks."""
        if not leaves:
            return {}
        tensors = {
            key: leaf if isinstance(leaf, Tensor) else torch.from_numpy(np.array(leaf))
            for key, leaf in leaves.items()
        }
        sizes = [leaf.nbytes for leaf in tensors.values()]
        rows = [leaf.contiguous().flatten() for leaf in tensors.values()]
        buffer = torch.cat([row.view(torch.uint8) for row in rows])
        parts = self.gather_bytes(name, buffer).split(sizes, dim=1)  # [W, bytes of a leaf] each
        joined: dict[str, Any] = {}
        for (key, leaf), part in zip(tensors.items(), parts, strict=True):
            values = part.clone().view(leaf.dtype).view(self.ranks, *leaf.shape)
            both = torch.cat(values.unbind(0), dim=axis)
            joined[key] = both if isinstance(leaves[key], Tensor) else both.numpy()
        return joined

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over the ranks.  float [...] each."""
        leaves = {str(i): tensor for i, tensor in enumerate(tensors)}
        total = self.add("gradient", flatten_leaves(leaves))
        return [*split_leaves(total, leaves, copy=True).values()]

    def of_updates(self, spec: RunSpec, learner: Learner | None) -> Exchange:
        """Return this exchange under allreduce; the identity for ranks that gather rows."""
        check_reduction(spec, learner, self.ranks)
        return self if spec.engine.reduce == REDUCE_ALLREDUCE else ALONE

    def places(self, count: int) -> Tensor:
        """Return the places of this rank in a group, int64 [n]; after its end it begins again."""
        size = part_size(count, self.ranks)
        return torch.arange(self.rank * size, (self.rank + 1) * size, device="cpu") % count

    def join_episodes(self, rows: Mapping[str, Array], counts: Sequence[int]) -> dict[str, Array]:
        """Return the rows of all episodes, in order."""
        joined = self.join("episodes", rows, axis=0)
        order = joined_places(counts, self.ranks)
        return {name: array[order] for name, array in joined.items()}

    def join_rollout(self, rows: TensorDict, hidden: TensorDict) -> tuple[TensorDict, TensorDict]:
        """Return the rows [T, E] of the envs of all ranks, and the memory [E] after them."""
        memory = {f"hidden.{name}": leaf.unsqueeze(0) for name, leaf in get_leaves(hidden).items()}
        joined = self.join("rollout", {**flatten_names(rows), **memory}, axis=1)
        length, envs, slots = joined["contribution"].shape
        rollout = Rollout(length, envs=envs, slots=slots, device=joined["reward"].device)
        for name, leaf in flatten_names(rollout.rows).items():
            leaf.copy_(joined[name])
        after = {name: joined[f"hidden.{name}"].squeeze(0) for name in get_leaves(hidden)}
        return rollout.rows, TensorDict(after, batch_size=[envs], device=hidden.device)

    def join_envs(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the state of all envs on rank 0; the own part on all others."""
        parts = self.gather_objects("envs", tree, to_first=True)
        return self.together(lambda: join_envs(parts) if self.first else tree)

    def take_envs(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the state of the envs of this rank."""
        return take_envs(tree, self.own)

    def facts(self, fact: T) -> list[T]:
        """Return the value of each rank."""
        return self.gather_objects("facts", fact)

    def together(self, action: Callable[[], T]) -> T:
        """Return the result of an action that all ranks run.

        Raises: the first error of a rank, of its class, on all ranks; errors of other classes than
        `ERRORS` leave the other ranks waiting.
        """
        return self._agree(action, named=True)

    def on_first(self, action: Callable[[], T]) -> T:
        """Return the plain result of an action that rank 0 runs for all.

        Raises: its error, on all ranks.
        """
        result = self._agree(action if self.first else lambda: None, named=False)
        return cast(T, self.facts(result)[0])

    def _agree(self, action: Callable[[], Any], *, named: bool) -> Any:
        result = None
        report = None
        cause = None
        try:
            result = action()
        except ERRORS as error:
            report = (type(error).__name__, str(error))
            cause = error
        error = first_error(self.facts(report), named=named)
        if error is not None:
            raise error from cause
        return result

    def check_equal(self, facts: Mapping[str, str], kind: type[Exception] = ConfigError) -> None:
        """Raise an error that lists the differences of ranks from rank 0."""
        if lines := find_differences(self.facts(dict(facts))):
            raise mark_common(kind("\n".join(lines)))

    def fingerprint(self, params: TensorDict, device: torch.device) -> dict[str, Tensor]:
        """Return a checksum of the bits of the policy: each word has a weight of its own, so that
        equal changes of many words do not cancel.
        """
        total = torch.zeros((), dtype=torch.int64, device=device)
        for _, leaf in sorted(flatten_names(params).items()):
            word = torch.int32 if leaf.dtype.itemsize % 4 == 0 else torch.uint8
            words = leaf.detach().reshape(-1).view(word).to(torch.int64)
            odd = 2 * torch.arange(len(words), device=words.device) + 1
            total = 31 * total + ((words + 1) * odd).sum()
        return {"policy_checksum": total}

    def check_fingerprint(self, metrics: dict[str, Any], round_index: int) -> None:
        """Compare the checksums of the policy."""
        checksum = f"{int(metrics.pop('policy_checksum')) & (2**64 - 1):016x}"
        name = f"checksum of the policy after round {round_index + 1}"
        self.check_equal({name: checksum}, RankError)

    def describe(self, spec: RunSpec) -> dict[str, str]:
        """Return the row on the ranks."""
        threads = torch.get_num_threads()
        each = "one thread" if threads == 1 else f"{threads} threads"
        return {"ranks": f"{self.ranks} of {each} each (E = {spec.envs:,}, {spec.task})"}

    def close(self) -> None:
        """Leave the ranks."""


def part_size(count: int, ranks: int) -> int:
    """Return the episodes that each rank plays of a group; joining drops the surplus."""
    return min(count, max(LEAST_ROWS, -(-count // ranks)))


def joined_places(counts: Sequence[int], ranks: int) -> Array:
    """Return the places of the episodes of groups, in order, among the parts of all ranks.

    Example:
        >>> joined_places([4, 3], ranks=2).tolist()  # rank 0 has 0 .. 3, rank 1 has 4 .. 7
        [0, 1, 4, 5, 2, 3, 6]
    """
    sizes = [part_size(count, ranks) for count in counts]
    starts = np.cumsum([0, *sizes])
    places = list[Array]()
    for count, size, start in zip(counts, sizes, starts, strict=False):
        episode = np.arange(count)
        places.append(episode // size * starts[-1] + start + episode % size)
    return np.concatenate(places)


def find_differences(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each fact in which ranks differ from rank 0.  facts: by rank.

    Example:
        >>> find_differences([{"torch": "2.13.0"}, {"torch": "2.12.1"}])
        ['torch: expected 2.13.0 as on rank 0, got 2.12.1 on rank 1']
    """
    lines: list[str] = []
    for name, wanted in facts[0].items():
        values = [other.get(name) for other in facts]
        for value in dict.fromkeys(value for value in values if value != wanted):
            ranks = [rank for rank, other in enumerate(values) if other == value]
            lines.append(
                f"{name}: expected {wanted} as on rank 0, got {value} on {name_ranks(ranks)}"
            )
    return lines


def check_reduction(spec: RunSpec, learner: Learner | None, ranks: int) -> None:
    """Raise a ConfigError under allreduce for a learner or minibatches that cannot be shared.

    ranks: their number, which divides the envs.
    """
    if spec.engine.reduce != REDUCE_ALLREDUCE or learner is None:
        return
    if not learner.reduces:
        raise ConfigError(
            f"engine.reduce: expected {REDUCE_GATHER} with the learner {learner.name!r}, "
            "which needs the rows of all "
            f"envs (its class does not set `reduces = True`), got {REDUCE_ALLREDUCE}"
        )
    own = spec.envs // ranks
    for name, parts in (
        ("minibatches", spec.ppo.minibatches or 1),
        ("world_envs", spec.ppo.world_envs),
    ):
        if own % parts:
            raise ConfigError(
                f"ppo.{name}: expected a divisor of the {own} envs of a rank (envs "
                f"{spec.envs}, engine.ranks "
                f"{ranks}) under engine.reduce {REDUCE_ALLREDUCE}, got {parts}"
            )
