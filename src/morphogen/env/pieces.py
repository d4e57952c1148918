"""Pieces: blocks of neighbouring envs that train and validate one after the other, so that
activations fit a budget.

Envs are independent of each other in training and validation, so an epoch of a few envs at a time
gives the same bits on a CPU, in the memory of a few.  Observation, policy, actions, lifecycle,
rewards and the state itself stay complete.

The number of pieces follows from the settings (`engine.activation_mib`, task, batch) and the kind
of device, never from its memory, the data or the seeds that live: `TaskKind.activation_bytes`
bounds what an env takes.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from tensordict import TensorClass, TensorDictBase

from morphogen.config.spec import RunSpec

FLOAT_BYTES = 4  # float32
CPU_MIB = 768
GPU_MIB = 16_384  # the cache serves few envs at once; a GPU is idle below thousands
MIN_ENVS = 2  # products over one network differ in the last bits from those over several
Node = TypeVar("Node", bound=TensorClass | TensorDictBase | torch.Tensor)


def piece_size(spec: RunSpec, needed: int, device: torch.device) -> int:
    """Return the envs of a piece: as many as fit `engine.activation_mib`, at least two.

    Args: needed: bytes of activations of an env (`TaskKind.activation_bytes`); 0: one piece.
    """
    budget = spec.engine.activation_mib or (GPU_MIB if device.type == "cuda" else CPU_MIB)
    return max(MIN_ENVS, int(budget * 2**20) // needed) if needed else spec.envs


def split_envs(envs: int, size: int) -> tuple[slice, ...]:
    """Return the fewest blocks of at most `size` envs, in order and equal up to one env; none has a
    single env.
    """
    count = max(1, min(math.ceil(envs / size), envs // MIN_ENVS))
    bounds = [envs * piece // count for piece in range(count + 1)]
    return tuple(slice(start, end) for start, end in itertools.pairwise(bounds))


def cut(tree: Node, rows: slice) -> Node:
    """Return the rows of a tree [E] as views; the tree itself if that is all of it."""
    part: Any = tree if rows == slice(0, tree.shape[0]) else tree[rows]
    return part


def join(parts: Sequence[Node]) -> Node:
    """Concatenate the trees of all pieces; a single one is not copied."""
    trees: Any = list(parts)
    whole: Any = trees[0] if len(trees) == 1 else torch.cat(trees)
    return whole
