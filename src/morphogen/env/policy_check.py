"""Check of a policy on made-up observations: its numbers have their form and are finite."""

from typing import Any

import torch
from torch import Tensor

from morphogen.env.episodes import Rollout
from morphogen.env.part_check import draw_normal, form_fault
from morphogen.env.setup import Setup
from morphogen.policy.distribution import noise_lanes
from morphogen.policy.policy import Policy
from morphogen.state import rng


def policy_fault(policy: Policy, setup: Setup) -> str:
    """Return the fault in the actions and values of a policy on made-up observations; "" without
    one.
    """
    envs = setup.spec.envs
    out = policy.act(
        policy.init(rng.env_keys(0, 0, 1, setup.device)[0]), *synthetic_inputs(policy, setup, envs)
    )
    return form_fault("value", out.value, (envs,)) or form_fault(
        "log_prob", out.log_prob, tuple(out.action.shape)
    )


def synthetic_inputs(policy: Policy, setup: Setup, envs: int) -> tuple[Any, ...]:
    """Return observation, masks, memory and noise of all envs: normal features and memory,
    everything legal.
    """
    slots = len(setup.net.slots)
    device = setup.device
    row: Any = Rollout(1, envs=envs, slots=slots, device=device).rows[0]
    memory: Any = policy.initial_hidden(envs, device=device)
    return (
        row["observation"].apply(_fill_normal),
        row["masks"].apply(torch.ones_like),
        memory.apply(_fill_normal, filter_empty=False),
        draw_normal(envs, noise_lanes(slots)).to(device),
    )


def _fill_normal(like: Tensor) -> Tensor:
    """Return normal numbers of this shape; other than floating-point tensors as they are."""
    return draw_normal(*like.shape).to(like.device) if like.is_floating_point() else like
