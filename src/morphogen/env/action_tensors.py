"""Actions as one tensor, or as one leaf per head."""

from typing import Any, cast

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from morphogen.errors import ConfigError
from morphogen.state.tree_ops import get_leaf
from morphogen.vocab.action import HEADS
from morphogen.vocab.text import format_value


def to_tensor(action: Tensor | TensorDictBase, envs: int | None = None) -> Tensor:
    """Return an action as one tensor, a column per head.

    Args:
        action: int64 [E, 8] in the order of `vocab.action.Head`, or a TensorDict [E] with a leaf
            int64 [E] per head; its other leaves, such as log-probabilities, have no effect.
        envs: number E of envs; None: any.

    Returns: int64 [E, 8].
    Raises: ConfigError for other types and shapes, and for a TensorDict without one of the heads.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> heads = mg.actions.to_heads(torch.zeros(2, 8, dtype=torch.int64))
        >>> mg.actions.to_tensor(heads).shape
        torch.Size([2, 8])
        >>> mg.actions.to_tensor(torch.zeros(2, 3, dtype=torch.int64))
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: action: expected int64 [E, 8], got torch.int64 [2, 3]
    """
    rows = "E" if envs is None else str(envs)
    if isinstance(action, TensorDictBase):
        names: list[str] = list(cast(Any, action).keys())
        if not set(HEADS) <= set(names):
            raise ConfigError(
                f"action: expected the heads {', '.join(HEADS)}, got {', '.join(map(str, names))}"
            )
        leaves = [get_leaf(action, head) for head in HEADS]
        for head, leaf in zip(HEADS, leaves, strict=True):
            if leaf.ndim != 1 or leaf.dtype != torch.int64 or len(leaf) != (envs or len(leaf)):
                raise ConfigError(
                    f"action.{head}: expected int64 [{rows}], got {leaf.dtype} {list(leaf.shape)}"
                )
        return torch.stack(leaves, dim=-1)
    if not isinstance(cast(Any, action), Tensor):
        raise ConfigError(f"action: expected a tensor or a TensorDict, got {format_value(action)}")
    if (
        action.ndim != 2
        or action.dtype != torch.int64
        or action.shape != (envs or len(action), len(HEADS))
    ):
        raise ConfigError(
            f"action: expected int64 [{rows}, {len(HEADS)}], got {action.dtype} "
            f"{list(action.shape)}"
        )
    return action


def to_heads(action: Tensor) -> TensorDict:
    """Return an action as a TensorDict with one leaf per head, the inverse of `to_tensor`.

    Shapes: action int64 [E, 8] -> TensorDict [E], leaves int64 [E] by the labels of
    `vocab.action.Head`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> heads = mg.actions.to_heads(torch.tensor([[mg.Op.GERMINATE, 1, 0, 0, 0, 0, 0, 0]]))
        >>> heads["op"].tolist(), heads["slot"].tolist()
        ([1], [1])
    """
    return TensorDict(
        dict(zip(HEADS, action.unbind(-1), strict=True)), batch_size=action.shape[:-1]
    )
