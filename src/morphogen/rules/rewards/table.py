"""The table of reward rules: how a rule looks, how one is built from its name, what a builder is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.errors import ConfigError
from morphogen.rules.rewards.own import POINTS, OwnRule, flat_potential, improvement_potential
from morphogen.state.measure import RewardInputs
from morphogen.vocab.spec import RewardSpec


class Rule(Protocol):
    """A reward rule: pure, per env; what it carries between epochs is its ledger, a TensorDict [E]."""

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the signed parts that sum to the reward, in the order of records."""
        ...

    @property
    def slot_scale(self) -> float:
        """Potential per point of a slot's Shapley value; 0 where the potential does not split."""
        ...

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """The ledger after a reset."""
        ...

    def potential(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, Tensor]:
        """Potential after the step [E] and whether it was measured, bool [E]."""
        ...

    def __call__(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Reward [E], components {name: [E]}, next ledger."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What a rule is told about the run besides its own spec."""

    param_budget: int
    episode_length: int
    gamma: float


def sparse(spec: RewardSpec, terms: Terms) -> OwnRule:
    """Value at the horizon and nothing before it: the yardstick, without shaping and without cost of ops."""
    return OwnRule(
        source=flat_potential,
        scale=0.0,
        slot_scale=0.0,
        gamma=terms.gamma,
        governor_penalty=spec.governor_penalty,
        op_cost=0.0,
        param_budget=terms.param_budget,
    )


def delta(spec: RewardSpec, terms: Terms) -> OwnRule:
    """`sparse` plus shaping on the measured clean improvement."""
    return OwnRule(
        source=improvement_potential,
        scale=spec.potential_scale,
        slot_scale=spec.potential_scale / POINTS,
        gamma=terms.gamma,
        governor_penalty=spec.governor_penalty,
        op_cost=spec.op_cost,
        param_budget=terms.param_budget,
    )


BUILDERS: dict[str, Callable[[RewardSpec, Terms], Rule]] = {"sparse": sparse, "delta": delta}


def build(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """The rule that a spec names, for one task and one discount."""
    if spec.rule not in BUILDERS:
        raise ConfigError(f"reward.rule is {spec.rule!r}; want one of {', '.join(BUILDERS)}")
    for name, number in (("param_budget", param_budget), ("episode_length", episode_length)):
        if number < 1:
            raise ConfigError(f"{name} is {number}; want >= 1")
    return BUILDERS[spec.rule](spec, Terms(param_budget=param_budget, episode_length=episode_length, gamma=gamma))
