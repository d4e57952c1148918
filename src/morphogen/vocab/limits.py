"""Limits of a run: the plain values that legality depends on."""

from dataclasses import dataclass

from morphogen.errors import ConfigError
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import CNN_KINDS
from morphogen.vocab.stage import Gate

AUTO_GATES = (Gate.TRAIN, Gate.BLEND, Gate.HOLD)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the actions of a run, built once.

    Raises: ConfigError for no enabled slot, numbers below 0, and names that are unknown or occur
    twice.

    Example:
        >>> import morphogen as mg
        >>> slots = mg.make("tiny", envs=1, seed=0).reset()[0].slots
        >>> limits = mg.Limits(enabled=(True, False), blueprints=("norm",), disabled_ops=("PRUNE",))
        >>> mg.rules.legal(slots, limits)[0, mg.Op.GERMINATE].tolist(), limits.allowed_blueprints
        ([True, False], (3,))
    """

    enabled: tuple[bool, ...]
    """Per slot."""
    max_seeds: int = 0
    """0 = no limit."""
    min_prune_age: int = 5
    """Epochs since germination."""
    auto_forward: tuple[str, ...] = ()
    """Gates that `steps.tick` passes by itself."""
    disabled_ops: tuple[str, ...] = ()
    blueprints: tuple[str, ...] = ()
    """() = all kinds of the run."""
    kinds: tuple[str, ...] = CNN_KINDS
    """Name of every blueprint code, "" = no blueprint (`vocab.blueprint`)."""

    def __post_init__(self) -> None:
        if not any(self.enabled):
            raise ConfigError(f"enabled: expected at least one True, got {self.enabled}")
        for field in ("max_seeds", "min_prune_age"):
            if getattr(self, field) < 0:
                raise ConfigError(f"{field}: expected an integer >= 0, got {getattr(self, field)}")
        _check_subset("auto_forward", self.auto_forward, [gate.name for gate in AUTO_GATES])
        _check_subset(
            "disabled_ops", self.disabled_ops, [op.name for op in Op if op is not Op.WAIT]
        )
        _check_subset("blueprints", self.blueprints, [name for name in self.kinds if name])

    @property
    def allowed_blueprints(self) -> tuple[int, ...]:
        """Codes of the blueprints that may be germinated, ascending."""
        chosen = self.blueprints or self.kinds
        return tuple(code for code, name in enumerate(self.kinds) if name and name in chosen)


def _check_subset(field: str, names: tuple[str, ...], allowed: list[str]) -> None:
    wrong = [name for name in names if name not in allowed]
    if wrong or len(set(names)) != len(names):
        raise ConfigError(
            f"{field}: expected distinct names out of {', '.join(allowed)}, got {list(names)}"
        )
