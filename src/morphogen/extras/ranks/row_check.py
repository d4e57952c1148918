"""Check of a policy before its envs are dealt out to ranks: equal bits in stacks of any size."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from morphogen.device.transfers import flatten_names
from morphogen.env.policy_check import synthetic_inputs
from morphogen.env.setup import Setup
from morphogen.policy.policy import Policy
from morphogen.state import rng


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
    inputs = synthetic_inputs(policy, setup, envs)
    starts = {size: sum(rows[:n]) for n, size in enumerate(rows)}  # of the last shard of a size
    with torch.no_grad():
        complete = _leaves(policy.act(params, *inputs))
        for size, start in starts.items():
            shard = slice(start, start + size)
            part = _leaves(policy.act(params, *(x[shard] for x in inputs)))
            names = [name for name, leaf in part.items() if not leaf.equal(complete[name][shard])]
            if names:
                return (
                    f"{', '.join(names)} of the policy differ in bits between {envs} envs at "
                    f"once and {size} of them"
                )
    return None


def _leaves(out: Any) -> Mapping[str, Tensor]:
    """Return the results of `act` by name, the memory as `hidden.h`."""
    return flatten_names(out)
