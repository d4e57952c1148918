"""Events about one slot: the life of its seed."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from morphogen.storage.type_check import Count, Real, Share
from morphogen.telemetry.events import SlotEvent


@dataclass(frozen=True, slots=True)
class SeedGerminated(SlotEvent):
    """A slot got a seed."""

    blueprint: str
    params: Count
    algorithm: str
    tempo: Count  # epochs of the first ramp
    alpha_target: Share
    accuracy: Real  # before


@dataclass(frozen=True, slots=True)
class StageChanged(SlotEvent):
    """A slot changed its stage; values as of before the move."""

    from_: str
    to: str
    cause: Literal["action", "tick", "govern"]
    blueprint: str | None
    alpha: Real
    age: Count
    epochs_in_stage: Count


@dataclass(frozen=True, slots=True)
class GateEvaluated(SlotEvent):
    """A gate was asked."""

    LEVEL: ClassVar[str] = "normal"
    LIFECYCLE: ClassVar[bool] = False

    gate: str
    passed: bool
    failed: tuple[str, ...]  # names of the checks


@dataclass(frozen=True, slots=True)
class SeedFossilized(SlotEvent):
    """A seed is kept for good; values as of the last epoch before."""

    blueprint: str
    params: Count
    age: Count
    contribution: Real
    shapley: Real
    accuracy_change: Real  # since germination, the host's own progress included


@dataclass(frozen=True, slots=True)
class SeedPruned(SlotEvent):
    """A seed is gone; values as of the last epoch before."""

    blueprint: str
    params: Count
    age: Count
    reason: Literal["action", "ramp", "governor"]
    contribution: Real
    accuracy_change: Real
