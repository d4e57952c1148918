"""The reward rule of a run: imported where a package offers it, built, and tried out where it is not from here."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.spec import RewardSpec
from morphogen.engine import extensions
from morphogen.errors import ConfigError
from morphogen.rules.rewards import archetypes, table
from morphogen.rules.rewards.table import BUILDERS, Rule, register
from morphogen.vocab.reward import FAMILIES, RULES


def build_rule(spec: RewardSpec, *, param_budget: int, episode_length: int, gamma: float) -> Rule:
    """The rule that a spec names; one that is not from here and breaks the contract of a rule is a ConfigError."""
    _load_extension(spec.rule)
    terms = {"param_budget": param_budget, "episode_length": episode_length, "gamma": gamma}
    if RULES.get(spec.rule) in FAMILIES:
        return table.build_rule(spec, **terms)
    try:
        rule = table.build_rule(spec, **terms)
        wrong = find_violation(rule)
    except Exception as error:
        raise _rule_error(spec.rule, f"cannot be used: {_error_line(error)}") from error
    if wrong:
        raise _rule_error(spec.rule, f"cannot be used: {wrong}")
    return rule


def _load_extension(name: str) -> None:
    """Import and register the rule if a package offers it and it is not there yet."""
    points = extensions.find_extensions().get(name, [])
    if name in BUILDERS or not points:
        return
    if len(points) > 1:
        raise ConfigError(f"reward.rule is {name}, which {extensions.origin(points)} offer; uninstall all but one")
    try:
        builder = points[0].load()
    except Exception as error:
        raise _rule_error(name, f"cannot be loaded: {_error_line(error)}") from error
    register(name, builder, origin=extensions.origin(points))


def _rule_error(name: str, reason: str) -> ConfigError:
    return ConfigError(f"reward.rule is {name} of {RULES.get(name)}, which {reason}")


def _error_line(error: Exception) -> str:
    """An exception in one printable line."""
    if isinstance(error, ConfigError):
        return str(error)
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {ascii(said)[1:-1]}" if said else type(error).__name__


def find_violation(rule: Rule) -> str:
    """The first thing that is wrong with a rule when it pays every archetype, in words; "" if nothing is."""
    names = rule.components
    if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
        return f"its components are {names!a}; want a tuple of names, each once"
    inputs = archetypes.archetype_inputs(list(archetypes.ARCHETYPES.values()), dtype=torch.float32)
    envs = inputs.batch_size[1]
    ledger = rule.init(envs, archetypes.SLOTS)
    for step in range(archetypes.STEPS):
        reward, parts, after = rule(inputs[step], ledger)
        wrong = _output_violation(names, reward, parts, envs) or _ledger_violation(ledger, after)
        if wrong:
            return f"in step {step + 1} {wrong}"
        ledger = after
    rule(inputs[0].to("meta"), rule.init(envs, archetypes.SLOTS, "meta"))  # raises where a value is read
    return ""


def _output_violation(names: tuple[str, ...], reward: Tensor, parts: dict[str, Tensor], envs: int) -> str:
    if set(parts) != set(names):
        return f"it pays {', '.join(parts) or 'nothing'}; its components are {', '.join(names)}"
    for name, value in {"reward": reward, **parts}.items():
        if value.shape != (envs,) or value.dtype != torch.float32:
            return f"its {name} is {value.dtype} {list(value.shape)}; want torch.float32 [{envs}], a number per env"
        if not value.isfinite().all():
            return f"its {name} is not finite"
    total = torch.stack([parts[name] for name in names]).sum(0)
    apart = int((total - reward).abs().argmax())
    if not torch.isclose(total[apart], reward[apart], rtol=1e-5, atol=1e-5):
        return f"its components sum to {total[apart]:g} where its reward is {reward[apart]:g}"
    return ""


def _ledger_violation(before: TensorDict, after: TensorDict) -> str:
    had, has = ({name: (leaf.dtype, leaf.shape) for name, leaf in one.items()} for one in (before, after))
    return "" if had == has else f"its ledger turns from {list(had)} into {list(has)}, or their shapes or dtypes change"
