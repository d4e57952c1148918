"""Initial values of modules of plain torch: by which rule each parameter was drawn.

A module is built once under a mode that sees every draw.  Where the last values of a parameter are
uniform, normal or constant, every env draws its own from the random streams by the same rule; other
values are equal in every env.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from morphogen.compat import UnguardedMode, schema_arguments, storage_key
from morphogen.errors import ConfigError
from morphogen.hosts.layout import ParamLeaf

_CONSTANTS = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0}
_DRAWS = {"randn": "normal_", "randn_like": "normal_", "rand": "uniform_", "rand_like": "uniform_"}


class DrawRule(NamedTuple):
    """Values uniform in `fill + [-bound, bound)`, or normal, or constant."""

    fill: float
    bound: float = 0.0
    std: float = 0.0

    def scaled(self, factor: float) -> "DrawRule":
        """Return the rule of the values times a number."""
        return DrawRule(self.fill * factor, abs(self.bound * factor), abs(self.std * factor))

    def shifted(self, offset: float) -> "DrawRule":
        """Return the rule of the values plus a number."""
        return self._replace(fill=self.fill + offset)


def _uniform(x: object, low: float = 0.0, high: float = 1.0) -> DrawRule:
    return DrawRule((low + high) / 2, bound=(high - low) / 2)


def _normal(x: object, mean: float = 0.0, std: float = 1.0) -> DrawRule:
    return DrawRule(mean, std=std)


# by name of an operator that fills its first argument
_FILLS: dict[str, Callable[..., DrawRule]] = {
    "uniform_": _uniform,
    "normal_": _normal,
    "fill_": lambda x, value: DrawRule(float(value)),
    "zero_": lambda x: DrawRule(0.0),
}
# by name of an operator that changes its first argument, or returns changed values
_CHANGES: dict[str, Callable[[DrawRule, float], DrawRule]] = {
    "mul": DrawRule.scaled,
    "div": lambda rule, number: rule.scaled(1 / number),
    "add": DrawRule.shifted,
    "sub": lambda rule, number: rule.shifted(-number),
}


class DrawRecorder(UnguardedMode):
    """Mode that remembers by which rule the memory of every tensor was filled."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator(device="cpu")  # its seed is fixed; the global one is left
        self._rules: dict[int, tuple[Tensor, DrawRule | None]] = {}  # the tensor keeps its memory

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and remember the rule of the values that it fills in."""
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name in _DRAWS:
            empty = torch.empty_like if name.endswith("_like") else torch.empty
            with self:
                return getattr(empty(args[0], **kwargs), _DRAWS[name])()
        if any(arg.name == "generator" for arg in schema_arguments(func)):
            kwargs["generator"] = self._generator
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            rule = self._rule(name, args, kwargs)
            if rule is not None or name.endswith("_"):
                self._rules[storage_key(result)] = result, rule
        return result

    def rule_of(self, parameter: Tensor) -> DrawRule | None:
        """Return the rule of all values of a parameter; None: none of those known here."""
        _, rule = self._rules.get(storage_key(parameter), (None, None))
        return rule if _is_whole(parameter) else None

    def _rule(self, name: str, args: tuple, kwargs: dict[str, Any]) -> DrawRule | None:
        if name in _FILLS and _is_whole(args[0]):
            numbers = [float(x) for x in args[1:] if not isinstance(x, Tensor)]
            return _FILLS[name](args[0], *numbers)
        if name in _CONSTANTS:
            return DrawRule(_CONSTANTS[name])
        if name in ("full", "full_like"):
            return DrawRule(float(args[1]))
        change = _CHANGES.get(name.rstrip("_"))
        if change is None or len(args) < 2 or isinstance(args[1], Tensor) or kwargs:
            return None
        _, before = self._rules.get(storage_key(args[0]), (None, None))
        return before and change(before, float(args[1]))


def _is_whole(tensor: Tensor) -> bool:
    """Return True if a tensor has all values of its memory."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def build_recorded(
    factory: Callable[[], nn.Module],
) -> tuple[nn.Module, dict[str, DrawRule | None]]:
    """Build a module; return it with the rule of every parameter, by name."""
    recorder = DrawRecorder()
    with recorder:
        module = factory()
    if not isinstance(module, nn.Module):
        raise ConfigError(
            "host_from_module: expected a function that builds a module, got one that builds "
            f"{type(module).__name__}"
        )
    return module, {name: recorder.rule_of(x) for name, x in module.named_parameters()}


def leaf_of(name: str, parameter: Tensor, rule: DrawRule | None) -> ParamLeaf:
    """Return the leaf of a parameter; without a rule, of zeros."""
    fill, bound, std = rule or DrawRule(0.0)
    return ParamLeaf(name, tuple(parameter.shape), bound, fill, std)
