"""Open table of reward rules: register a builder by name, build a rule from a spec."""

import inspect

from morphogen.config.spec import RewardSpec
from morphogen.errors import ConfigError
from morphogen.rules.rewards import own
from morphogen.rules.rewards.legacy import rules as legacy
from morphogen.rules.rewards.protocol import Builder, Rule, Terms
from morphogen.vocab.reward import REGISTERED, RULE_NAME, RULES

__all__ = ["BUILDERS", "Builder", "Rule", "Terms", "build_rule", "describe_rule", "register"]

BUILDERS: dict[str, Builder] = {
    "sparse": own.build_sparse,
    "delta": own.build_delta,
    "value": own.build_value,
    "rent": own.build_rent,
    "loss": own.build_loss,
    "shaped": legacy.build_shaped,
    "escrow": legacy.build_escrow,
    "simplified": legacy.build_simplified,
    "basic": legacy.build_basic,
    "basic_plus": legacy.build_basic_plus,
}


def register(name: str, builder: Builder, *, origin: str = REGISTERED) -> None:
    """Add a rule: from now on `RewardSpec(rule=name)` is accepted and built by `builder`.

    `origin`: whose rule it is; a name that is taken is refused.  The first line of the builder's docstring says what
    the rule pays.
    """
    if not isinstance(name, str) or not RULE_NAME.fullmatch(name):
        raise ConfigError(f"name of a reward rule: expected letters and digits, with . _ - between them, got {name!a}")
    if not callable(builder):
        raise ConfigError(f"reward rule {name}: expected a function (spec, terms) -> rule, got {builder!a:.60}")
    if name in BUILDERS or RULES.get(name, origin) != origin:
        raise ConfigError(f"reward rule {name}: expected a new name, got the name of a rule of {RULES[name]}")
    BUILDERS[name] = builder
    RULES[name] = origin


def describe_rule(name: str) -> str:
    """Summary of a rule of the table: the first line of its builder's docstring."""
    return (inspect.getdoc(BUILDERS[name]) or "").partition("\n")[0]


def build_rule(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """The rule that a spec names, for one task and one discount."""
    for name, number in (("param_budget", param_budget), ("episode_length", episode_length)):
        if number < 1:
            raise ConfigError(f"{name}: expected an integer >= 1, got {number}")
    if spec.rule not in BUILDERS:
        raise ConfigError(f"reward.rule: expected one of {', '.join(BUILDERS)}, got {spec.rule!a}")
    return BUILDERS[spec.rule](
        spec.fill_defaults(), Terms(param_budget=param_budget, episode_length=episode_length, gamma=gamma)
    )
