"""Inputs of a policy as a flat tree of tensors, the form of environments of other libraries."""

from typing import Any

import torch
from tensordict import TensorDict

from morphogen.env.phases import PolicyInputs
from morphogen.vocab.action import SIZES, Head, Op


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
