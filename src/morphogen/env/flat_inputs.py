"""Inputs of a policy as a flat tree of tensors, the form of environments of other libraries."""

from typing import Any, cast

import torch
from tensordict import TensorDict, TensorDictBase

from morphogen.env.phases import PolicyInputs
from morphogen.state.decision import ActionMasks, Observation
from morphogen.state.tree_ops import get_leaf
from morphogen.vocab.action import SIZES, Head, Op
from morphogen.vocab.observation import ENV, SLOT


def head_sizes(slots: int) -> dict[str, int]:
    """Return the number of choices of each head."""
    return {head.label: SIZES.get(head, slots) for head in Head}


def mask_shapes(slots: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of the mask of each head, for one env."""
    return {label: (size,) for label, size in head_sizes(slots).items()} | {
        Head.SLOT.label: (len(Op), slots)
    }


def flatten_inputs(inputs: PolicyInputs) -> dict[str, Any]:
    """Return the inputs of a policy, [...], as tensors by name."""
    observation = inputs.observation
    masks = inputs.masks
    shape = inputs.masks.batch_size
    return {
        "observation": torch.cat((observation.env, observation.slots.flatten(-2)), dim=-1),
        "instance": observation.instance,
        "blueprints": observation.blueprints,
        "mask": TensorDict(
            {head.label: getattr(masks, head.label) for head in Head}, batch_size=shape
        ),
    }


def restore_inputs(tensordict: TensorDictBase) -> PolicyInputs:
    """Return tensors by name, [...], as the inputs of a policy, the inverse of `flatten_inputs`."""
    features = get_leaf(tensordict, "observation")
    shape = tensordict.batch_size
    slots = torch.unflatten(features[..., len(ENV) :], -1, (-1, len(SLOT)))
    mask = cast(TensorDictBase, tensordict["mask"])
    masks: dict[str, Any] = {head.label: mask[head.label] for head in Head}
    good = torch.ones(shape, dtype=torch.bool, device=features.device)
    observation = Observation(
        env=features[..., : len(ENV)],
        instance=tensordict["instance"],
        slots=slots,
        blueprints=tensordict["blueprints"],
        finite=good,
        nonfinite=torch.zeros_like(good, dtype=torch.int64),
        batch_size=shape,
    )
    return PolicyInputs(observation, ActionMasks(**masks, batch_size=shape), ~good)
