"""Exchange between the ranks that each hold some rows of a rollout."""

from collections.abc import Mapping, Sequence

from torch import Tensor


class Exchange:
    """Sums and gathers over the ranks that share an update; this class is that of one process, and the base.

    Rank w of W holds the rows [T, E / W] of the envs from w E / W on.

    Attributes: rank, from 0; ranks, their number.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> alone = mg.learn.Exchange()
        >>> alone.sum([torch.ones(2)]), alone.gather("moments", {"count": torch.tensor(3.0)})
        ([tensor([1., 1.])], {'count': tensor([3.])})
    """

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self.rank, self.ranks = rank, ranks

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over the ranks, bit for bit the same on all of them.  float [...] each."""
        return list(tensors)

    def gather(self, name: str, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the leaves of all ranks, [W, ...] each; `name`: row of the table of collectives."""
        del name
        return {key: leaf.unsqueeze(0) for key, leaf in leaves.items()}


ALONE = Exchange()
