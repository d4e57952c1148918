"""Checks of a policy on made-up observations: its numbers are finite, and do not depend on the size
of a stack.
"""

from collections.abc import Sequence
from typing import Any, cast

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
        policy.init(rng.env_keys(0, 0, 1, setup.device)[0]), *_synthetic_inputs(policy, setup, envs)
    )
    return form_fault("value", out.value, (envs,)) or form_fault(
        "log_prob", out.log_prob, tuple(out.action.shape)
    )


def find_row_dependence(policy: Policy, setup: Setup, rows: Sequence[int]) -> str | None:
    """Say in which result `policy.act` differs in bits between all envs at once and shards of them;
    None: in none.

    Args:
        rows: envs of each shard, in order; one shard of each size is compared, on made-up
        observations.
    """
    envs = sum(rows)
    device = setup.device
    params = policy.init(rng.env_keys(0, 0, 1, device)[0])
    inputs = _synthetic_inputs(policy, setup, envs)
    starts = {size: sum(rows[:n]) for n, size in enumerate(rows)}  # of the last shard of a size
    with torch.no_grad():
        whole = _leaves(policy.act(params, *inputs))
        for size, start in starts.items():
            shard = slice(start, start + size)
            part = _leaves(policy.act(params, *(x[shard] for x in inputs)))
            names = [name for name, leaf in part.items() if not leaf.equal(whole[name][shard])]
            if names:
                return (
                    f"{', '.join(names)} of the policy differ in bits between {envs} envs at "
                    f"once and {size} of them"
                )
    return None


def _synthetic_inputs(policy: Policy, setup: Setup, envs: int) -> tuple[Any, ...]:
    """Observation, masks, memory and noise of all envs: normal features and memory, everything
    legal.
    """
    slots = len(setup.net.slots)
    device = setup.device
    row = Rollout(1, envs=envs, slots=slots, device=device).rows[0]
    observation = cast(Any, row)["observation"]
    masks = cast(Any, row)["masks"]
    features = {
        name: _fill_normal(getattr(observation, name)) for name in ("env", "instance", "slots")
    }
    memory = cast(Any, policy.initial_hidden(envs, device=device)).apply(
        _fill_normal, filter_empty=False
    )
    noise = draw_normal(envs, noise_lanes(slots)).to(device)
    return observation.replace(**features), masks.apply(torch.ones_like), memory, noise


def _fill_normal(like: Tensor) -> Tensor:
    """Return normal numbers of this shape; other than floating-point tensors as they are."""
    return draw_normal(*like.shape).to(like.device) if like.is_floating_point() else like


def _leaves(out: Any) -> dict[str, Tensor]:
    """Return the results of `act` by name, the memory as `hidden.h`."""
    return {
        name if isinstance(name, str) else ".".join(name): leaf
        for name, leaf in out.items(True, True)
    }
