"""Permutation of slots: every axis and every index that counts slots, and nothing else.

A rule of permuted slots must return the permuted result.

    from morphogen.rules.legality import legal
    from morphogen.testing.builders import scenes
    from morphogen.testing.builders.permute import permute
    slots = scenes.make_slots([[{"stage": 5}, {}, {"stage": 6}]])
    allow = scenes.make_limits(slots, enabled=(True, True, False))
    order = [2, 0, 1]  # new slot 0 is the old slot 2
    permuted = legal(permute(slots, order), permute(allow, order))
    assert permuted.equal(legal(slots, allow)[:, :, order])
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import is_tensor_collection

from morphogen.state.decision import ActionMasks, ActionOutcome, ActionSpec, Observation
from morphogen.state.env import EnvState, Governor, Slots
from morphogen.state.measure import Attribution, RewardInputs, SlotInputs, StepScore, TickReport
from morphogen.testing.builders.tree_equality import map_tree
from morphogen.vocab.limits import Limits

Order = Sequence[int]
_SLOT_CLASSES = (Slots, SlotInputs, TickReport)  # classes whose leaves are all [E, S]
# class -> its leaves that count slots, with the axes that do
_SLOT_AXES: dict[type, dict[str, tuple[int, ...]]] = {
    ActionMasks: {"slot": (2,)},
    ActionSpec: {"target": (1,)},
    ActionOutcome: {"target": (1,)},
    Observation: {"slots": (1,), "blueprints": (1,)},
    EnvState: {"slots": (1,)},
    Governor: {"slots": (1,)},
    Attribution: {
        **dict.fromkeys(("contribution", "contribution_valid", "shapley", "interaction_sum"), (1,)),
        **dict.fromkeys(("boost_received", "interaction_valid"), (1,)),
        "interaction": (1, 2),
    },
    RewardInputs: {"slots": (1,), "interaction": (1, 2)},
    StepScore: dict.fromkeys(("potential_by_slot", "detectors", "detector_ratio"), (1,)),
}


def permute(tree: Any, order: Order, *, axis: int | None = None) -> Any:
    """Permute the slots of a tree: new slot i is the old slot `order[i]`.

    Knows the classes of the package and `Limits`.  Bare tensors are permuted at `axis`; None:
    unchanged.
    """
    if isinstance(tree, Limits):
        return dataclasses.replace(tree, enabled=tuple(tree.enabled[i] for i in order))
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(permute(part, order, axis=axis) for part in tree)
    return map_tree(tree, lambda part: _permute_part(part, order, axis))


def _permute_part(part: Any, order: Order, axis: int | None) -> Any:
    if not is_tensor_collection(part):
        return part if axis is None or part.dim() <= axis else _permute_axes(part, order, (axis,))
    if isinstance(part, _SLOT_CLASSES):
        return _permute_axes(part, order, (1,))
    axes = _SLOT_AXES.get(type(part), {})
    leaves = {
        name: _permute_axes(getattr(part, name), order, where) for name, where in axes.items()
    }
    # seeds must have one size; their names keep their order
    if isinstance(part, EnvState | Governor):
        names = list(part.seeds.keys())
        leaves["seeds"] = part.seeds.replace(
            {name: part.seeds[names[i]] for name, i in zip(names, order, strict=True)}
        )
    if isinstance(part, EnvState):
        leaves["governor"] = _permute_part(part.governor, order, axis)
    if isinstance(part, ActionSpec):
        place = torch.tensor(order, device=part.slot.device).argsort()
        leaves["slot"] = torch.where(part.target.any(-1), place[part.slot], part.slot)
    return part.replace(leaves) if leaves else part


def _permute_axes(part: Any, order: Order, axes: tuple[int, ...]) -> Any:
    """Permute the slots of a tensor or of every leaf of a TensorClass."""
    if is_tensor_collection(part):
        return part.apply(lambda leaf: _permute_axes(leaf, order, axes))
    for axis in axes:
        part = part.index_select(axis, torch.tensor(order, device=part.device))
    return part
