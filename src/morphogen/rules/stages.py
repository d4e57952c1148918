"""Sets of stages as masks.  stage int64 [...] -> bool [...]; a code outside the table is in no set."""

from torch import Tensor

from morphogen.vocab.stage import ACTIVE, BLENDED, COOLING, OCCUPIED, Stage


def clamp_stage(stage: Tensor) -> Tensor:
    """Replace codes outside the table by UNKNOWN, so that a table can be indexed."""
    return stage.masked_fill((stage < 0) | (stage >= len(Stage)), int(Stage.UNKNOWN))


def occupied(stage: Tensor) -> Tensor:
    """Mask of slots that hold a seed: GERMINATED .. FOSSILIZED."""
    return _within(stage, OCCUPIED)


def active(stage: Tensor) -> Tensor:
    """Mask of seeds that run in the forward pass: TRAINING .. FOSSILIZED."""
    return _within(stage, ACTIVE)


def blended(stage: Tensor) -> Tensor:
    """Mask of seeds that can change the output of the host: BLENDING .. FOSSILIZED."""
    return _within(stage, BLENDED)


def cooling(stage: Tensor) -> Tensor:
    """Mask of slots without a seed that are not free yet: PRUNED .. RESETTING."""
    return _within(stage, COOLING)


def _within(stage: Tensor, stages: tuple[Stage, ...]) -> Tensor:
    """Every set is a run of codes (`vocab.stage`), so two comparisons decide."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))
