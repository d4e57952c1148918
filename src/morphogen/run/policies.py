"""The policy behind a name: the one that PPO trains, or a baseline."""

from morphogen.learn import baselines
from morphogen.nets.policy import Policy, RecurrentPolicy
from morphogen.run.setup import Setup


def policy_of(name: str, setup: Setup) -> Policy:
    """The policy that a spec or a comparison names, for the networks of a run."""
    spec = setup.spec
    if name == "ppo":
        return RecurrentPolicy(
            hidden=spec.policy.hidden,
            blueprint_dim=spec.policy.blueprint_dim,
            floor=spec.policy.floor,
            contribution=spec.ppo.contribution_coef > 0,
            op_bias=spec.policy.op_bias,
            full_bias=spec.policy.full_bias,
        )
    return baselines.make(name, setup.limits, lifecycle=spec.lifecycle, episode_length=spec.episode_length)
