"""Private names of torch and tensordict: the package uses them here and nowhere else.

A release of either library may rename one; `tests/unit/test_compat.py` has a test for each.  The
names stand under public ones of this module, which other rooms import.  Loads torch and tensordict,
and nothing else of the project.
"""

from functools import cache
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import list_mode_options
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import (
    tree_flatten,
    tree_map,
    tree_unflatten,
)

__all__ = [
    "TorchDispatchMode",
    "UnguardedMode",
    "add_each",
    "addcmul_each",
    "apply_function",
    "build_tree",
    "compiled_graphs",
    "copy_each",
    "count_writes",
    "div_each",
    "field_names",
    "is_composite",
    "leaves_of",
    "lerp_each",
    "list_mode_options",
    "mul_each",
    "norm_each",
    "outside_transforms",
    "schema_arguments",
    "sqrt_each",
    "storage_key",
    "storage_of",
    "sub_each",
    "transforms_active",
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
    "unchecked_operator",
]

_TORCH: Any = torch

# One launch for a list of tensors: torch has no public operators on lists.
add_each = _TORCH._foreach_add
addcmul_each = _TORCH._foreach_addcmul
copy_each = _TORCH._foreach_copy_
div_each = _TORCH._foreach_div
lerp_each = _TORCH._foreach_lerp
mul_each = _TORCH._foreach_mul
norm_each = _TORCH._foreach_norm
sqrt_each = _TORCH._foreach_sqrt
sub_each = _TORCH._foreach_sub

# One call tells whether any transform of `torch.func` is active; looking at every tensor takes
# longer than a step.
transforms_active = _TORCH._C._are_functorch_transforms_active
# A context whose tensors outlive the transform in which they are made
outside_transforms = _TORCH._C._DisableFuncTorch


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a function with its own gradient.

    `Function.apply` inspects the signature at every call, which is half of the Python of a
    minibatch, only to serve transforms; the compiler can't trace it where no tensor needs a
    gradient.
    """
    if not torch.is_grad_enabled():
        return function.forward(*args)
    if torch.compiler.is_dynamo_compiling():
        # the compiler takes an input of `torch.func.grad` for a constant, but no view of it
        views = (arg.view_as(arg) if isinstance(arg, Tensor) else arg for arg in args)
        return function.apply(*views)
    if transforms_active():
        return function.apply(*args)
    directly: Any = super(torch.autograd.Function, function)  # torch declares no types
    return directly.apply(*args)


def compiled_graphs() -> int:
    """Return the number of graphs that the compiler has made in this process."""
    return counters["stats"]["unique_graphs"]


class UnguardedMode(TorchDispatchMode):
    """Base of modes that see every operator, under which nothing is compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: the guard of every call of an operator would take longer than the call."""
        return False


def schema_arguments(operator: Any) -> list[Any]:
    """Return the declared arguments of an operator, with their names, types and aliases."""
    return operator._schema.arguments


def unchecked_operator(operator: Any) -> Any:
    """Return the compiled function of an operator, whose call skips the Python of torch."""
    return operator._op


@cache
def is_composite(operator: Any) -> bool:
    """Return True for an operator that a CPU computes by other operators."""
    by_kernel = _TORCH._C._dispatch_has_kernel_for_dispatch_key
    return operator._can_decompose() and not by_kernel(operator.name(), "CPU")


def storage_key(tensor: Tensor) -> int:
    """Return the identity of the memory of a tensor, which tensors without elements have too."""
    return tensor.untyped_storage()._cdata


def count_writes(tensor: Tensor) -> int:
    """Return the number of writes to a tensor in place since it was made."""
    return tensor._version


def storage_of(tree: Any) -> Any:
    """Return the TensorDict that holds the leaves of a tree: the tree itself, or the TensorDict in
    a tensor class.
    """
    return tree if isinstance(tree, TensorDictBase) else tree._tensordict


def leaves_of(tree: Any) -> dict[str, Any]:
    """Return the dictionary of the leaves and branches of a tree, and no copy: never write to it.

    Reading a tree by its methods takes longer than most steps compute.
    """
    return storage_of(tree)._tensordict


def field_names(kind: Any) -> frozenset[str]:
    """Return the names of the fields of a tensor class."""
    return kind.__expected_keys__


def build_tree(kind: Any, leaves: dict[str, Any], like: Any) -> Any:
    """Build a tree around a dictionary, which it keeps, with batch size and device of a TensorDict.

    The constructors check all leaves, which takes longer than most steps compute.
    """
    storage: Any = TensorDict.__new__(TensorDict)
    storage._device = like.device
    storage._tensordict = leaves
    storage._batch_size = like.batch_size
    storage._td_dim_names = None
    if kind is TensorDict:
        return storage
    tree = kind.__new__(kind)
    object.__setattr__(tree, "_tensordict", storage)
    object.__setattr__(tree, "_non_tensordict", {})
    return tree
