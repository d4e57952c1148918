"""Reward rules by name: build the rule that a spec names; make a rule of a plain function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.errors import ConfigError
from morphogen.rules.rewards.archetypes import ARCHETYPES, archetype_inputs
from morphogen.rules.rewards.protocol import Builder, Rule, Terms, WithoutPotential
from morphogen.state.measure import RewardInputs

PENALTY_COMPONENT = "governor"  # the component that a plain rule has besides those of its function
PaymentFn = Callable[[RewardInputs], Mapping[str, Tensor]]  # inputs [E] -> {component: [E]}


def describe_rule(name: str) -> str:
    """Summary of a rule: the first line of its builder's docstring."""
    return (inspect.getdoc(RULES[name]) or "").partition("\n")[0]


def build_rule(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """The rule that a spec names, for one task and one discount."""
    for name, number in (("param_budget", param_budget), ("episode_length", episode_length)):
        if number < 1:
            raise ConfigError(f"{name}: expected an integer >= 1, got {number}")
    terms = Terms(param_budget=param_budget, episode_length=episode_length, gamma=gamma)
    return RULES[spec.rule](spec.fill_defaults(), terms)


@dataclass(frozen=True, slots=True)
class FunctionRule(WithoutPotential):
    """Reward rule of a plain function, without a ledger; a step that was rolled back pays only the penalty."""

    function: PaymentFn
    governor_penalty: float
    components: tuple[str, ...]

    def init(self, envs: int, slots: int, device: torch.device | str = "cpu") -> TensorDict:
        """Nothing is carried from step to step."""
        del slots
        return TensorDict({}, batch_size=[envs], device=device)

    def __call__(self, inputs: RewardInputs, ledger: TensorDict) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """One step.  inputs, ledger [E] -> (reward [E], its components {name: [E]}, ledger [E])."""
        real, lost = inputs.committed_acc, inputs.rolled_back
        parts = {name: part.to(real.dtype) for name, part in self.function(inputs).items()}
        parts[PENALTY_COMPONENT] = torch.full_like(real, -self.governor_penalty)
        paid = {name: torch.where(lost == (name == PENALTY_COMPONENT), parts[name], 0.0) for name in self.components}
        return torch.stack(list(paid.values())).sum(0), paid, ledger


def rule_from_function(function: PaymentFn) -> Builder:
    """The builder of a rule that pays what a function `inputs -> {component: [E]}` returns.

    The reward is the sum of the components, which are the same in every step; the function must not read values on
    the host.  The first line of its docstring says what the rule pays.
    """
    return update_wrapper(partial(_build_function_rule, function), function)


def _build_function_rule(function: PaymentFn, spec: RewardSpec, terms: Terms) -> FunctionRule:
    """Build the rule; its components come from a call on the meta device, where a read of a value raises."""
    del terms
    example = cast(RewardInputs, archetype_inputs([ARCHETYPES["wait only"]], dtype=torch.float32)[0])
    names = tuple(function(example.to(torch.device("meta"))))
    if PENALTY_COMPONENT in names:
        raise ConfigError(
            f"reward rule {spec.rule}: expected components other than {PENALTY_COMPONENT}, which is added for rollbacks"
        )
    return FunctionRule(function, governor_penalty=spec.governor_penalty, components=(*names, PENALTY_COMPONENT))
