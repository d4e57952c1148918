"""Actions as one tensor, or as one leaf per head."""

from collections.abc import Sequence
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
    if isinstance(action, TensorDictBase):
        names = list(map(str, cast(Any, action).keys()))
        if not set(HEADS) <= set(names):
            raise ConfigError(
                f"action: expected the heads {', '.join(HEADS)}, got {', '.join(names)}"
            )
        action = torch.stack([get_leaf(action, head) for head in HEADS], dim=-1)
    check_form("action", action, torch.int64, (envs or "E", len(HEADS)))
    return action


def check_form(name: str, value: object, dtype: torch.dtype, shape: Sequence[int | str]) -> None:
    """Raise ConfigError unless a value is a tensor of this form; a letter stands for any size."""
    if isinstance(value, Tensor):
        sizes = zip(shape, value.shape, strict=False)
        known = all(isinstance(size, str) or size == found for size, found in sizes)
        if known and value.dtype == dtype and value.ndim == len(shape):
            return
        got = f"{value.dtype} {list(value.shape)}"
    else:
        got = format_value(value)
    form = f"{str(dtype).removeprefix('torch.')} [{', '.join(map(str, shape))}]"
    raise ConfigError(f"{name}: expected {form}, got {got}")


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
