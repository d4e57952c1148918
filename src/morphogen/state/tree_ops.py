"""Operations on trees of tensors: build, replace and select per env, and per slot; constant tables
on the device.
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from tensordict import TensorClass, TensorDict, TensorDictBase
from torch import Tensor
from torch.autograd import forward_ad

from morphogen.compat import (
    build_tree,
    field_names,
    leaves_of,
    outside_transforms,
    storage_of,
    transforms_active,
)

Tree = TensorClass | TensorDictBase
TreeT = TypeVar("TreeT", bound=TensorClass | TensorDictBase)
NodeT = TypeVar("NodeT", bound=TensorClass | TensorDictBase | Tensor)
Write = tuple[Tensor, Mapping[str, Tensor | float]]  # a mask, and new values of leaves by name
Table = tuple["bool | int | float | Table", ...]  # nested numbers of one kind


class _Documented(type(TensorClass)):
    """Metaclass that keeps the docstring of a class, which tensordict replaces by a signature."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        cls: Any = super().__new__(mcs, name, bases, namespace, **options)
        cls.__doc__ = namespace.get("__doc__")
        return cls


class FrozenTree(TensorClass["frozen", "tensor_only"], metaclass=_Documented):
    """Base of the immutable trees of tensors."""


if TYPE_CHECKING:

    class TensorDictField(TensorDict):
        """TensorDict as the declared type of a field.

        Type checkers see an unknown base of TensorDict (tensordict 0.14), and lose the type of such
        a field on access.
        """

        def __get__(self, instance: object, owner: type | None = None) -> TensorDict: ...
        def __set__(self, instance: object, value: TensorDict) -> None: ...

else:
    TensorDictField = TensorDict


def get_leaf(tree: TensorDictBase, key: str | tuple[str, ...]) -> Tensor:
    """Return the leaf of this name, or path of names; type checkers know the result, unlike
    `tree[key]`.
    """
    leaf: Any = tree[key]  # not `cast`, which graphs of the compiler do not trace
    return leaf


def get_leaves(tree: TensorDictBase) -> dict[str, Tensor]:
    """Return the leaves of a tree without branches by name."""
    nodes: Any = tree
    return dict(nodes.items())


def get_branches(tree: TensorDictBase) -> dict[str, TensorDict]:
    """Return the branches of a tree without leaves by name."""
    nodes: Any = tree
    return dict(nodes.items())


def nested_leaves(tree: Tree) -> list[Tensor]:
    """Return the leaves of a tree and its branches, in order."""
    nodes: Any = tree
    return list(nodes.values(True, True))


def copy_tree(tree: TreeT) -> TreeT:
    """Return a tree with its own tensors."""
    nodes: Any = tree
    return nodes.clone()


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Expand tensors to the shape to which they broadcast; views."""
    views: Any = torch.broadcast_tensors(*tensors)
    return tuple(views)


def is_finite(x: Tensor) -> Tensor:
    """Mask of finite numbers, in half of the launches of `torch.isfinite`.  float [...] -> bool
    [...].
    """
    return x.abs() < torch.inf


def l2_norm(x: Tensor) -> Tensor:
    """L2 norm over the last axis.  [..., N] -> [...]."""
    return torch.linalg.vector_norm(x, dim=-1)


def expand_mask(mask: Tensor, like: Tensor) -> Tensor:
    """Append axes of length 1 to a per-env mask, ready to broadcast.  mask [E], like [E, ...] ->
    [E, 1, ...].
    """
    return mask.view(mask.shape + (1,) * (like.dim() - mask.dim()))


def unsafe_new(kind: type[TreeT], like: Tree, **leaves: Any) -> TreeT:
    """Build a tensor class without checking that leaves have batch size and device of
    `like`.

    The checks of the constructor take longer than most steps compute.  Raises: ValueError unless it
    gets exactly its fields.
    """
    if leaves.keys() != field_names(kind):
        fields = ", ".join(sorted(field_names(kind)))
        raise ValueError(f"{kind.__name__}: expected the fields {fields}, got {', '.join(leaves)}")
    return build_tree(kind, leaves, storage_of(like))


def unsafe_tensordict(like: Tree, leaves: Mapping[str, Any]) -> TensorDict:
    """Build a TensorDict like `unsafe_new`."""
    return build_tree(TensorDict, dict(leaves), storage_of(like))


def replace(tree: TreeT, **parts: Any) -> TreeT:
    """Return the tensor class with the named parts exchanged; all others are shared, so never write
    into a part.

    Parts must have batch size and device of `tree`.  Raises: AttributeError for an unknown name.
    """
    leaves = leaves_of(tree)
    if unknown := sorted(parts.keys() - leaves.keys()):
        raise AttributeError(
            f"{type(tree).__name__}: expected some of {', '.join(leaves)}, got {', '.join(unknown)}"
        )
    return build_tree(type(tree), leaves | parts, storage_of(tree))


def refuse_transforms(step: str, *inputs: Tensor) -> None:
    """Raise RuntimeError for a derivative or `vmap` of a step: the derivative would be 0 or lack
    terms.

    inputs: tensors that the step reads.  One that requires a gradient is fine under
    `torch.no_grad`.
    """
    # does not trace the check for transforms, but has that for gradients
    graph = torch.compiler.is_compiling()
    # one call, where a look at every leaf costs a step
    wrapped = not graph and (
        _have_tangents(inputs) or (transforms_active() and any(map(_is_wrapped, inputs)))
    )
    if wrapped or (torch.is_grad_enabled() and any(leaf.requires_grad for leaf in inputs)):
        raise RuntimeError(
            f"{step} has no derivative and no vmap: call it outside of torch.func, on "
            "inputs without requires_grad or "
            "under torch.no_grad; its batch is the envs, and reward rules and policies have "
            "derivatives and vmap"
        )


def _is_wrapped(leaf: Tensor) -> bool:
    """Return whether a tensor belongs to a transform of `torch.func`."""
    return torch.func.debug_unwrap(leaf) is not leaf


def _have_tangents(leaves: Sequence[Tensor]) -> bool:
    """Return whether a tensor carries a tangent of forward mode."""
    for leaf in leaves:  # noqa: SIM110  (a generator would double the calls of every minibatch)
        if forward_ad.unpack_dual(leaf).tangent is not None:
            return True
    return False


def select(mask: Tensor, yes: NodeT | int, no: NodeT) -> NodeT:
    """Select per env the row of `yes` where the mask is True, else of `no`.  mask bool [E]; equal
    trees [E], or a number for all leaves.
    """
    node: Any = no
    other: Any = yes
    if isinstance(node, Tensor):
        chosen: Any = choose(expand_mask(mask, node), other, node)
        return chosen
    given = dict.fromkeys(leaves_of(node), other) if isinstance(other, int) else leaves_of(other)
    leaves = {name: select(mask, given[name], leaf) for name, leaf in leaves_of(node).items()}
    return build_tree(type(node), leaves, storage_of(node))


def clear_rows(mask: Tensor, tree: NodeT) -> NodeT:
    """Set the rows of all leaves to 0 where the mask is True.  mask bool [E], tree [E]."""
    return select(mask, 0, tree)


def select_slots(mask: Tensor, yes: TensorDict, no: TensorDict) -> TensorDict:
    """Select per env and slot the seed of `yes` where the mask is True, else of `no`.  mask
    bool [E, S].

    Seeds are stored as `{slot name: {params, momentum, ...: [E, P_s]}}`, keys in slot order.
    """
    other = get_branches(yes)
    rows = {
        name: select(mask[:, s], other[name], seed)
        for s, (name, seed) in enumerate(get_branches(no).items())
    }
    return unsafe_tensordict(no, rows)


def zero_empty_slots(seeds: TensorDict, occupied: Tensor) -> TensorDict:
    """Set the parameters of empty slots to 0.  occupied bool [E, S]."""
    rows: dict[str, TensorDict] = {}
    for full, (name, row) in zip(
        occupied.unsqueeze(-1).unbind(1), get_branches(seeds).items(), strict=True
    ):
        leaves = {key: choose(full, leaf, 0.0) for key, leaf in get_leaves(row).items()}
        rows[name] = unsafe_tensordict(row, leaves)
    return unsafe_tensordict(seeds, rows)


def masked_update(tree: TreeT, *writes: Write) -> TreeT:
    """Return the part after some writes in order: each replaces its named leaves where its mask is
    True.

    Values are tensors or numbers, cast to the dtype of the old leaf.  The mask broadcasts against
    every named leaf.
    """
    leaves = dict(leaves_of(tree))
    for mask, values in writes:
        for name, new in values.items():
            old = leaves[name]
            value = new if isinstance(new, (int, float)) else new.to(old.dtype)
            leaves[name] = choose(mask, value, old)
    return build_tree(type(tree), leaves, storage_of(tree))


class _Tables:
    """Constant tables as attributes, each built once per device."""


_TABLES = _Tables()
_NUMBERS = itertools.count()  # of tables: threads that build two at once give them two names


@functools.cache
def _build_table(values: Table | float, dtype: torch.dtype, device: torch.device) -> Tensor:
    with outside_transforms():  # a table built inside of a gradient outlives it
        return torch.tensor(values, dtype=dtype, device=device)


@functools.cache
def _cache_table(
    build: Callable[..., Table | float],
    args: tuple[Hashable, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> str:
    """Return the name of the attribute that holds a table."""
    name = f"table_{next(_NUMBERS)}"
    setattr(_TABLES, name, _build_table(build(*args), dtype, device))
    return name


@torch.compiler.assume_constant_result
def _table_name(
    build: Callable[..., Table | float],
    args: tuple[Hashable, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> str:
    return _cache_table(build, args, dtype, device)


def computed_table(
    build: Callable[..., Table | float],
    *args: Hashable,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return `build(*args)` as a tensor, built once per device: later calls copy nothing.

    A graph reads the table like an attribute of a module: assumed-constant results of two calls
    stop the compiler.
    """
    return getattr(_TABLES, _table_name(build, args, dtype, device))


def _as_given(values: Table | float) -> Table | float:
    return values


def constant_table(values: Table | float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a constant as a tensor, built once per device (`computed_table`)."""
    return computed_table(_as_given, values, dtype=dtype, device=device)


def _count_up(count: int) -> Table:
    return tuple(range(count))


def positions(count: int, device: torch.device) -> Tensor:
    """Return 0 .. count-1, built once per device.  -> int64 [count]."""
    return computed_table(_count_up, count, dtype=torch.int64, device=device)


def choose(mask: Tensor, yes: Tensor | float, no: Tensor | float) -> Tensor:
    """Select as `torch.where` does, in one launch: for every number that one fills a tensor, each
    time.

    Shapes broadcast.  A number takes the dtype of the other side; of two numbers, both are
    integers.
    """
    if torch.compiler.is_dynamo_compiling():  # a graph writes numbers into its kernels
        chosen = torch.where(mask, yes, no)  # of flags and an integer: integers
        if isinstance(yes, (int, float)):
            return chosen.to(no.dtype) if isinstance(no, Tensor) else chosen
        return chosen.to(yes.dtype) if isinstance(no, (int, float)) else chosen
    # quicker than a check for tensors, whose class has a slow one
    if isinstance(yes, (int, float)):
        if isinstance(no, (int, float)):
            no = _build_table(no, torch.int64, mask.device)
        yes = _build_table(yes, no.dtype, mask.device)
    elif isinstance(no, (int, float)):
        no = _build_table(no, yes.dtype, mask.device)
    return torch.where(mask, yes, no)


def divide_ints(count: Tensor, whole: int) -> Tensor:
    """Return `count / whole` in float32, whatever the default dtype.  count int64 [...] -> float32
    [...].
    """
    return count / constant_table(whole, torch.float32, count.device)
