"""Reward rule of a run: imported from the package that offers it, built, and checked unless built in."""

import torch
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.engine import extensions
from morphogen.errors import ConfigError
from morphogen.rules.rewards import archetypes, table
from morphogen.rules.rewards.protocol import Builder, Rule, Terms
from morphogen.rules.rewards.table import BUILDERS, register
from morphogen.vocab.reward import FAMILIES, RULES


def build_rule(
    spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float, builder: Builder | None = None
) -> Rule:
    """Build the rule that a spec names, or the one of a builder.

    Raises: ConfigError for an external rule that breaks the contract of a rule.
    """
    terms = {"param_budget": param_budget, "episode_length": episode_length, "gamma": gamma}
    source = "reward rule handed in"
    if builder is None:
        _load_extension(spec.rule)
        if RULES.get(spec.rule) in FAMILIES:
            return table.build_rule(spec, **terms)
        source = f"reward.rule: {spec.rule} of {RULES.get(spec.rule)}"
    try:
        rule = table.build_rule(spec, **terms) if builder is None else builder(spec, Terms(**terms))
        wrong = find_violation(rule)
    except Exception as error:
        raise ConfigError(f"{source}: {_error_line(error)}") from error
    if wrong:
        raise ConfigError(f"{source}: {wrong}")
    return rule


def _load_extension(name: str) -> None:
    """Import and register the rule of a package unless the rule is registered."""
    points = extensions.find_extensions().get(name, [])
    if name in BUILDERS or not points:
        return
    if len(points) > 1:
        raise ConfigError(
            f"reward.rule: expected one package with {name}, got {extensions.origin(points)}; uninstall one"
        )
    try:
        builder = points[0].load()
    except Exception as error:
        raise ConfigError(
            f"reward.rule: {name} of {RULES.get(name)}: cannot be imported: {_error_line(error)}"
        ) from error
    register(name, builder, origin=extensions.origin(points))


def _error_line(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {ascii(message)[1:-1]}" if message else type(error).__name__


def find_violation(rule: Rule) -> str:
    """Describe the first violation of the contract by a rule on every archetype; "" without one."""
    names = rule.components
    if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
        return f"components: expected a tuple of distinct names, got {names!a}"
    inputs = archetypes.archetype_inputs(list(archetypes.ARCHETYPES.values()), dtype=torch.float32)
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
