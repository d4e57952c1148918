"""Reward rules by name: build the rule that a spec names; make a rule of a plain function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, cast

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.config.registry import show_part
from morphogen.errors import ConfigError
from morphogen.rules.rewards.example_inputs import make_reward_inputs
from morphogen.rules.rewards.protocol import Builder, Rule, Terms
from morphogen.state.measure import RewardInputs
from morphogen.state.tree_ops import choose

PENALTY_COMPONENT = "governor"  # component that a plain rule adds to its function's
PaymentFn = Callable[[RewardInputs], Mapping[str, Tensor]]  # inputs [E] -> {component: [E]}


def describe_rule(name: str) -> str:
    """Summary of a rule: the first line of its builder's docstring.

    Raises: KeyError for an unknown name, ConfigError for a rule of another package that cannot be
    used.

    Example:
        >>> import morphogen as mg
        >>> mg.rules.describe_rule("rent")[:56]
        '`delta`, but parameters are charged per step while they '
    """
    return " ".join((inspect.getdoc(RULES[name]) or "").partition("\n\n")[0].split())


def build_rule(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """Build the rule that a spec names, for one task and one discount.

    Args:
        spec: name of the rule and its settings; None in a field: the default of the rule.
        param_budget: parameters that cost the full price.
        episode_length: epochs.
        gamma: discount of the return, per epoch.

    Raises: ConfigError for a budget or a length below 1, and for a rule that cannot be used.

    Example:
        >>> import morphogen as mg
        >>> rule = mg.rules.build_rule(
        ...     mg.RewardSpec(rule="delta"), param_budget=300, episode_length=8, gamma=1.0
        ... )
        >>> rule.components
        ('value', 'shaping', 'rent', 'op_cost', 'governor')
        >>> rule.init(envs=2, slots=3)["phi"].tolist()
        [0.0, 0.0]
    """
    for name, number in (("param_budget", param_budget), ("episode_length", episode_length)):
        if number < 1:
            raise ConfigError(f"{name}: expected an integer >= 1, got {number}")
    terms = Terms(param_budget=param_budget, episode_length=episode_length, gamma=gamma)
    builder = RULES[spec.rule]
    if inspect.isfunction(builder) and len(inspect.signature(builder).parameters) == 1:
        raise ConfigError(
            "expected the builder of a rule, got a function: wrap it in "
            "morphogen.rule_from_function"
        )
    return builder(spec.fill_defaults(), terms)


@dataclass(frozen=True, slots=True)
class FunctionRule(Rule):
    """Reward rule of a plain function, without a ledger; a step that was rolled back pays only the
    penalty.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> build = mg.rule_from_function(lambda inputs: {"accuracy": inputs.next_val_acc / 100})
        >>> rule = build(
        ...     mg.RewardSpec(governor_penalty=2.0),
        ...     mg.Terms(20_000, episode_length=75, gamma=0.995),
        ... )
        >>> isinstance(rule, mg.rules.FunctionRule), rule.components
        (True, ('accuracy', 'governor'))
        >>> inputs = mg.rules.make_reward_inputs(rolled_back=True)
        >>> rule(inputs, rule.init(envs=1, slots=3))[0].tolist()
        [-2.0]
    """

    function: PaymentFn
    governor_penalty: float
    components: tuple[str, ...]

    def __call__(
        self, inputs: RewardInputs, ledger: TensorDict
    ) -> tuple[Tensor, dict[str, Tensor], TensorDict]:
        """Pay one step.  inputs, ledger [E] -> (reward float32 [E], its components {name: [E]},
        ledger [E]).
        """
        real = inputs.committed_acc
        lost = inputs.rolled_back
        parts = {name: part.to(real.dtype) for name, part in self.function(inputs).items()}
        parts[PENALTY_COMPONENT] = torch.full_like(real, -self.governor_penalty)
        amounts = {
            name: choose(lost == (name == PENALTY_COMPONENT), parts[name], 0.0)
            for name in self.components
        }
        return torch.stack(list(amounts.values()), dim=-1).sum(-1), amounts, ledger


def rule_from_function(function: PaymentFn) -> Builder:
    """Return the builder of a rule that pays the components that a function returns.

    Args:
        function: `RewardInputs [E] -> {component: float [E]}`, the same components in every step.
            The function must not read values on the host.  The first line of its docstring
            describes the rule.

    Returns: a builder for `RULES.register`, `RewardSpec(rule=...)` and `make(rule=...)`.  The
    reward is the sum of the components.
    Raises: ConfigError, when a rule is built, for another result than a dict of a number per env,
    and for a component `governor`, which is added for rollbacks.

    Example:
        >>> import morphogen as mg
        >>> def lean(inputs):
        ...     return {"accuracy": inputs.next_val_acc / 100, "size": -1e-4 * inputs.live_params}
        >>> build = mg.rule_from_function(
        ...     lean
        ... )  # `mg.RULES.register("lean", build)` gives it a name in a program
        >>> rule = build(
        ...     mg.RewardSpec().fill_defaults(), mg.Terms(20_000, episode_length=75, gamma=0.995)
        ... )
        >>> inputs = mg.rules.make_reward_inputs(next_val_acc=66.0, live_params=2000)
        >>> reward, components, _ = rule(inputs, rule.init(envs=1, slots=3))
        >>> (
        ...     {name: round(part.item(), 3) for name, part in components.items()},
        ...     round(reward.item(), 3),
        ... )
        ({'accuracy': 0.66, 'size': -0.2, 'governor': 0.0}, 0.46)
    """
    return update_wrapper(partial(_build_function_rule, function), function)


def component_names(function: PaymentFn, inputs: RewardInputs) -> tuple[str, ...]:
    """Call a function once, and return the names of the components that its rule pays.  inputs [E].

    Raises: ConfigError for another result than a dict of a number per env, and for a component
    `governor`.
    """
    parts: Any = function(inputs)
    if not isinstance(parts, Mapping) or not parts:
        raise ConfigError(
            f"expected a dict of named parts of the reward, got {show_part(cast(Any, parts))}"
        )
    named = {str(name): part for name, part in cast("Mapping[Any, Any]", parts).items()}
    if PENALTY_COMPONENT in named:
        raise ConfigError(
            f"expected components other than {PENALTY_COMPONENT}, which is added for rollbacks"
        )
    for name, part in named.items():
        given = f"{part.dtype} {list(part.shape)}" if isinstance(part, Tensor) else show_part(part)
        if not isinstance(part, Tensor) or part.shape != inputs.horizon.shape or part.is_complex():
            raise ConfigError(
                f"component {name}: expected a tensor [E], a real number per env, got {given}"
            )
    return (*named, PENALTY_COMPONENT)


def _build_function_rule(function: PaymentFn, spec: RewardSpec, terms: Terms) -> FunctionRule:
    """Build the rule; its components come from a call on the meta device, where a read of a value
    raises.
    """
    del terms
    example: Any = make_reward_inputs(2, dtype=torch.float32)
    names = component_names(function, example.to("meta"))
    return FunctionRule(function, governor_penalty=spec.governor_penalty, components=names)
