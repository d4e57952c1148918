"""The arm behind a name: the policy that PPO trains, a baseline, or a schedule."""

from typing import NamedTuple

from morphogen.learn import baselines
from morphogen.nets.policy import Policy, RecurrentPolicy
from morphogen.run.optimum import OPTIMAL, optimal
from morphogen.run.schedules import Control, control_of, schedule_of
from morphogen.run.setup import Setup


class Arm(NamedTuple):
    """Who decides, and what narrows the choice."""

    policy: Policy
    control: Control | None = None  # None = whatever is legal


def arm_of(name: str, setup: Setup) -> Arm:
    """The arm that a spec or a comparison names, for the networks of a run."""
    spec = setup.spec
    if name == "ppo":
        return Arm(
            RecurrentPolicy(
                hidden=spec.policy.hidden,
                blueprint_dim=spec.policy.blueprint_dim,
                floor=spec.policy.floor,
                contribution=spec.ppo.contribution_coef > 0,
                op_bias=spec.policy.op_bias,
                full_bias=spec.policy.full_bias,
            )
        )
    if name == OPTIMAL:
        return Arm(optimal(setup))
    schedule = setup.schedule if name == spec.policy_name else schedule_of(name, spec)
    if schedule is not None:
        return Arm(baselines.Random(), control_of(schedule, spec, setup.device))
    return Arm(baselines.make(name, setup.limits, lifecycle=spec.lifecycle, episode_length=spec.episode_length))
