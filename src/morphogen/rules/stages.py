"""Sets of stages as masks.  stage int64 [...] -> bool [...]; a code outside the table is in no set."""

from torch import Tensor

from morphogen.vocab.stage import ACTIVE, BLENDED, COOLING, OCCUPIED, Stage


def clamp_stage(stage: Tensor) -> Tensor:
    """The stage with codes outside the table as UNKNOWN: safe to look up."""
    return stage.masked_fill((stage < 0) | (stage >= len(Stage)), int(Stage.UNKNOWN))


def occupied(stage: Tensor) -> Tensor:
    """A seed is there: GERMINATED .. FOSSILIZED."""
    return _within(stage, OCCUPIED)


def active(stage: Tensor) -> Tensor:
    """The seed runs in the forward pass: TRAINING .. FOSSILIZED."""
    return _within(stage, ACTIVE)


def blended(stage: Tensor) -> Tensor:
    """The seed can change what the host computes: BLENDING .. FOSSILIZED."""
    return _within(stage, BLENDED)


def cooling(stage: Tensor) -> Tensor:
    """The seed is gone and the slot is not free yet: PRUNED .. RESETTING."""
    return _within(stage, COOLING)


def _within(stage: Tensor, stages: tuple[Stage, ...]) -> Tensor:
    """Every set is a run of codes (`vocab.stage`), so two comparisons decide."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))
