"""Exchange with other processes that hold other envs of the same run; by default there are none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError

T = TypeVar("T")
Array = np.ndarray[Any, Any]
A = TypeVar("A", Tensor, Array)


class Exchange:
    """Bridge between the processes that share the envs of a run; this class is the identity.

    All processes call the same methods in the same order.

    Attributes:
        first: whether this process writes the files and prints for all.
        place: number of this process among those on its machine; it chooses the device.
        recordable: whether a loop that contains sums may be recorded as a graph.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> alone = mg.ppo.Exchange()
        >>> alone.own(8), alone.sum([torch.ones(2)]), alone.facts("cpu")
        (range(0, 8), [tensor([1., 1.])], ['cpu'])
    """

    first: bool = True
    place: int = 0
    recordable: bool = True

    def own(self, count: int) -> range:
        """Return the consecutive envs, of `count`, that this process holds."""
        return range(count)

    def join(self, name: str, leaves: Mapping[str, A], axis: int) -> dict[str, A]:
        """Return the leaves of all processes, joined along an axis in the order of the envs.

        All processes pass equal shapes and dtypes.  `name`: of the exchange, for a ledger.
        """
        del name, axis
        return dict(leaves)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all processes, in equal bits.  float [...] each."""
        return list(tensors)

    def of_updates(self, spec: RunSpec, learner: Any) -> "Exchange":
        """Return the exchange within updates: the identity where an update gets all rows.

        Raises: ConfigError for a learner or a config that cannot exchange within updates.
        """
        del spec, learner
        return self

    def places(self, count: int) -> Tensor:
        """Return the places of the episodes, of a group, that are played here.  int64 [n]."""
        return torch.arange(count, device="cpu")

    def join_episodes(self, rows: Mapping[str, Array], counts: Sequence[int]) -> dict[str, Array]:
        """Return the rows of all episodes of groups, in order, from those played here."""
        del counts
        return dict(rows)

    def join_rollout(self, rows: TensorDict, hidden: TensorDict) -> tuple[TensorDict, TensorDict]:
        """Return the rows [T, E] of the envs of all processes, and the memory [E] after them."""
        return rows, hidden

    def join_envs(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the nested state of all envs; only the first process may rely on it."""
        return tree

    def take_envs(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the part of the nested state of all envs that this process holds."""
        return tree

    def facts(self, fact: T) -> list[T]:
        """Return a small plain value of each process."""
        return [fact]

    def together(self, action: Callable[[], T]) -> T:
        """Return the result of an action that all processes run.

        Raises: the first error of a process, in all of them.
        """
        return action()

    def on_first(self, action: Callable[[], T]) -> T:
        """Return the plain result of an action that the first process runs for all.

        Raises: its error, in all processes.
        """
        return action()

    def check_equal(self, facts: Mapping[str, str], kind: type[Exception] = ConfigError) -> None:
        """Raise an error of this kind unless all processes have the same facts."""
        del facts, kind

    def fingerprint(self, params: TensorDict, device: torch.device) -> dict[str, Tensor]:
        """Return numbers by name that tell whether all processes have the same policy."""
        del params, device
        return {}

    def check_fingerprint(self, metrics: dict[str, Any], round_index: int) -> None:
        """Take the numbers of `fingerprint` out of the metrics of a round, and compare them.

        Raises: RankError unless all processes have the same policy.
        """
        del metrics, round_index

    def describe(self, spec: RunSpec) -> dict[str, str]:
        """Return the rows on the processes in the description of a run."""
        del spec
        return {}


ALONE = Exchange()
