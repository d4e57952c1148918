"""Number formats of hosts and seeds in a forward pass."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtype of features in training and validation, and of the copies of parameters and inputs that
    make them.

    Parameters, optimiser state, statistics of normalisations, losses and updates keep the dtype of
    the parameters.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> (
        ...     mg.hosts.Precision(torch.bfloat16).cast(torch.ones(2)),
        ...     mg.hosts.Precision().cast(torch.ones(2)),
        ... )
        (tensor([1., 1.], dtype=torch.bfloat16), tensor([1., 1.]))
    """

    dtype: torch.dtype | None = None
    """Dtype of features; None: the dtype of the parameters."""
    scaled: bool = False
    """Losses are multiplied by `state.scaling` for the backward pass (`rules.loss_scale`)."""

    @property
    def label(self) -> str:
        """Name of the dtype, for parameters in float32."""
        return str(self.dtype or torch.float32).removeprefix("torch.")

    def cast(self, x: Tensor) -> Tensor:
        """Convert parameters or inputs to the dtype of features; integers stay as they are."""
        return x if self.dtype is None or not x.is_floating_point() else x.to(self.dtype)


FULL = Precision()  # no casts
