"""Check of a policy before its envs are dealt out to ranks: equal bits in stacks of any size."""

from typing import Any

import torch

from morphogen.device.transfers import flatten_names
from morphogen.env.policy_check import synthetic_inputs
from morphogen.env.setup import Setup
from morphogen.policy.policy import Policy
from morphogen.state import rng


def find_row_dependence(policy: Policy, setup: Setup, ranks: int) -> str | None:
    """Say in which result `policy.act` differs in bits between all envs at once and a shard of one
    of so many ranks; None: in none.  Observations are made up.
    """
    envs = setup.spec.envs
    size = envs // ranks
    params = policy.init(rng.env_keys(0, 0, 1, setup.device)[0])
    inputs = synthetic_inputs(policy, setup, envs)
    shard = slice(envs - size, envs)
    act: Any = policy.act  # a tree of results is none for type checkers
    with torch.no_grad():
        complete = flatten_names(act(params, *inputs))
        part = flatten_names(act(params, *(x[shard] for x in inputs)))
    names = [name for name, leaf in part.items() if not leaf.equal(complete[name][shard])]
    if not names:
        return None
    return (
        f"{', '.join(names)} of the policy differ in bits between {envs} envs at once and {size} "
        "of them"
    )
