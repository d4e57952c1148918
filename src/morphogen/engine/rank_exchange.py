"""Exchange of an update between ranks that each keep their own rows: `engine.reduce` allreduce."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from morphogen.config.execution_spec import REDUCE_ALLREDUCE, REDUCE_GATHER
from morphogen.config.spec import RunSpec
from morphogen.device.collectives import Collectives
from morphogen.errors import ConfigError
from morphogen.learn.exchange import ALONE, Exchange
from morphogen.learn.learner import Learner
from morphogen.nets.flat_params import copy_leaves, flatten_leaves


class RankExchange(Exchange):
    """Exchange through the collectives of a run: one all-reduce for each sum, one all-gather for each gather."""

    def __init__(self, collectives: Collectives) -> None:
        super().__init__(collectives.rank, collectives.ranks)
        self._collectives = collectives

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over the ranks.  float [...] each."""
        leaves = {str(i): tensor for i, tensor in enumerate(tensors)}
        total = self._collectives.all_reduce("gradient", flatten_leaves(leaves))
        return [*copy_leaves(total, leaves).values()]

    def gather(self, name: str, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the leaves of all ranks, [W, ...] each."""
        return self._collectives.gather(name, {key: leaf.unsqueeze(0) for key, leaf in leaves.items()}, dim=0)


def build_exchange(spec: RunSpec, learner: Learner | None, collectives: Collectives) -> Exchange:
    """Build the exchange of the updates of a run: none between ranks that gather their rows.

    Raises: ConfigError like `check_exchange`.
    """
    check_exchange(spec, learner, collectives.ranks)
    if spec.engine.reduce != REDUCE_ALLREDUCE or collectives.ranks == 1:
        return ALONE
    return RankExchange(collectives)


def check_exchange(spec: RunSpec, learner: Learner | None, ranks: int) -> None:
    """Raise a ConfigError under allreduce for a learner that needs all rows, or a rank without its part of a minibatch.

    ranks: their number, which divides the envs.
    """
    if spec.engine.reduce != REDUCE_ALLREDUCE or learner is None:
        return
    if not learner.reduces:
        raise ConfigError(
            f"engine.reduce: expected {REDUCE_GATHER} with the learner {learner.name!r}, which needs the rows of all "
            f"envs (its class does not set `reduces = True`), got {REDUCE_ALLREDUCE}"
        )
    own, parts = spec.envs // ranks, spec.ppo.minibatches or 1
    if own % parts:
        raise ConfigError(
            f"ppo.minibatches: expected a divisor of the {own} envs of a rank (envs {spec.envs}, engine.ranks "
            f"{ranks}) under engine.reduce {REDUCE_ALLREDUCE}, got {parts}"
        )
    if own % spec.ppo.world_envs:
        raise ConfigError(
            f"ppo.world_envs: expected a divisor of the {own} envs of a rank (envs {spec.envs}, engine.ranks "
            f"{ranks}) under engine.reduce {REDUCE_ALLREDUCE}, got {spec.ppo.world_envs}"
        )
