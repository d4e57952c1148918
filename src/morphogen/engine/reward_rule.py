"""Reward rule of a run: built by name, and checked unless it is of this distribution."""

from typing import Any, cast

import torch
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.config.registry import error_line
from morphogen.errors import ConfigError
from morphogen.rules.rewards import archetypes, table
from morphogen.rules.rewards.protocol import Rule


def build_rule(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """Build the rule that a spec names.

    Raises: ConfigError for a rule from outside that breaks the contract of a rule.
    """
    terms = {"param_budget": param_budget, "episode_length": episode_length, "gamma": gamma}
    if spec.rule in RULES.builtin():
        return table.build_rule(spec, **terms)
    _ = RULES[spec.rule]  # raises by itself where the rule cannot be imported
    try:
        rule = table.build_rule(spec, **terms)
        wrong = find_violation(rule)
    except Exception as error:
        raise ConfigError(f"{RULES.source(spec.rule)}: {error_line(error)}") from error
    if wrong:
        raise ConfigError(f"{RULES.source(spec.rule)}: {wrong}")
    return rule


def find_violation(rule: Rule) -> str:
    """Describe the first violation of the contract by a rule on every archetype; "" without one."""
    names = rule.components
    if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
        return f"components: expected a tuple of distinct names, got {names!a}"
    inputs = cast(Any, archetypes.archetype_inputs(list(archetypes.ARCHETYPES.values()), dtype=torch.float32))
    envs = inputs.batch_size[1]
    ledger = rule.init(envs, archetypes.SLOTS)
    for step in range(archetypes.STEPS):
        reward, parts, after = rule(inputs[step], ledger)
        wrong = _output_violation(names, reward, parts, envs)
        had, has = ({name: (leaf.dtype, leaf.shape) for name, leaf in tree.items()} for tree in (ledger, after))
        if not wrong and had != has:
            wrong = f"ledger: expected {list(had)} with their dtypes and shapes, got {list(has)}"
        if wrong:
            return f"step {step + 1}: {wrong}"
        ledger = after
    rule(inputs[0].to("meta"), rule.init(envs, archetypes.SLOTS, "meta"))  # raises where a value is read
    return ""


def _output_violation(names: tuple[str, ...], reward: Tensor, parts: dict[str, Tensor], envs: int) -> str:
    if set(parts) != set(names):
        return f"components: expected {', '.join(names)}, got {', '.join(parts) or 'none'}"
    for name, value in {"reward": reward, **parts}.items():
        if value.shape != (envs,) or value.dtype != torch.float32:
            return f"{name}: expected torch.float32 [{envs}], a number per env, got {value.dtype} {list(value.shape)}"
        if not value.isfinite().all():
            return f"{name}: expected finite numbers"
    total = torch.stack([parts[name] for name in names]).sum(0)
    env = int((total - reward).abs().argmax())
    if not torch.isclose(total[env], reward[env], rtol=1e-5, atol=1e-5):
        return f"components: expected a sum of {reward[env]:g}, the reward, got {total[env]:g}"
    return ""
