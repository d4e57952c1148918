"""Actions: heads, their values, which op uses which head, outcomes and reasons."""

from enum import IntEnum

from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Curve


class Op(IntEnum):
    """Operation of an env in this epoch: the first column of an action.

    Example:
        >>> import morphogen as mg
        >>> [op.name for op in mg.Op]
        ['WAIT', 'GERMINATE', 'SET_ALPHA_TARGET', 'PRUNE', 'FOSSILIZE', 'ADVANCE']
    """

    WAIT, GERMINATE, SET_ALPHA_TARGET, PRUNE, FOSSILIZE, ADVANCE = range(6)


class Style(IntEnum):
    """Ramp curve and blend algorithm of a seed.

    ADD adds the delta to the features, MULTIPLY scales them by a function of it, GATE adds it times
    an openness per sample.
    """

    LINEAR_ADD, LINEAR_MULTIPLY, SIGMOID_ADD, GATED_GATE = range(4)


class Tempo(IntEnum):
    """Length of the first ramp: 3, 5 or 8 epochs."""

    FAST, STANDARD, SLOW = range(3)


class AlphaTarget(IntEnum):
    """Alpha at the end of a ramp: 0.5, 0.7 or 1."""

    HALF, SEVENTY, FULL = range(3)


class AlphaSpeed(IntEnum):
    """Length of a later ramp: 0, 3, 5 or 8 epochs."""

    INSTANT, FAST, MEDIUM, SLOW = range(4)


class AlphaCurve(IntEnum):
    """Shape of a later ramp."""

    LINEAR, COSINE, SIGMOID_GENTLE, SIGMOID, SIGMOID_SHARP = range(5)


STYLE_CURVE: tuple[Curve, ...] = (Curve.LINEAR, Curve.LINEAR, Curve.SIGMOID, Curve.LINEAR)
STYLE_ALGORITHM: tuple[Algorithm, ...] = (
    Algorithm.ADD,
    Algorithm.MULTIPLY,
    Algorithm.ADD,
    Algorithm.GATE,
)
TEMPO_EPOCHS: tuple[int, ...] = (3, 5, 8)
ALPHA_TARGETS: tuple[float, ...] = (0.5, 0.7, 1.0)
SPEED_TICKS: tuple[int, ...] = (0, 3, 5, 8)
CURVE_SHAPE: tuple[Curve, ...] = (
    Curve.LINEAR,
    Curve.COSINE,
    Curve.SIGMOID,
    Curve.SIGMOID,
    Curve.SIGMOID,
)
CURVE_STEEPNESS: tuple[float, ...] = (12.0, 12.0, 6.0, 12.0, 24.0)


class Head(IntEnum):
    """Columns of an action, in sampling order.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> action = torch.zeros(4, len(mg.Head), dtype=torch.int64)  # WAIT in 4 envs
        >>> action[0, mg.Head.OP], action[0, mg.Head.BLUEPRINT] = mg.Op.GERMINATE, mg.Blueprint.NORM
        >>> action[0].tolist(), mg.Head.ALPHA_TARGET.label
        ([1, 0, 3, 0, 0, 0, 0, 0], 'alpha_target')
    """

    OP, SLOT, BLUEPRINT, STYLE, TEMPO, ALPHA_TARGET, ALPHA_SPEED, ALPHA_CURVE = range(8)

    @property
    def label(self) -> str:
        """The name in configs, events and masks: `alpha_target`."""
        return self.name.lower()


HEADS: tuple[str, ...] = tuple(head.label for head in Head)
VALUES: dict[Head, type[IntEnum]] = {
    Head.OP: Op,
    Head.BLUEPRINT: Blueprint,
    Head.STYLE: Style,
    Head.TEMPO: Tempo,
    Head.ALPHA_TARGET: AlphaTarget,
    Head.ALPHA_SPEED: AlphaSpeed,
    Head.ALPHA_CURVE: AlphaCurve,
}
VALUE_NAMES: dict[Head, tuple[str, ...]] = {  # of all heads but the slot, which is named by the run
    head: tuple(value.label if isinstance(value, Blueprint) else value.name for value in values)
    for head, values in VALUES.items()
}
SIZES: dict[Head, int] = {head: len(values) for head, values in VALUES.items()}  # SLOT has S values

_USES: dict[Op, tuple[Head, ...]] = {
    Op.WAIT: (),
    Op.GERMINATE: (Head.SLOT, Head.BLUEPRINT, Head.STYLE, Head.TEMPO, Head.ALPHA_TARGET),
    Op.SET_ALPHA_TARGET: (
        Head.SLOT,
        Head.STYLE,
        Head.ALPHA_TARGET,
        Head.ALPHA_SPEED,
        Head.ALPHA_CURVE,
    ),
    Op.PRUNE: (Head.SLOT, Head.ALPHA_SPEED, Head.ALPHA_CURVE),
    Op.FOSSILIZE: (Head.SLOT,),
    Op.ADVANCE: (Head.SLOT,),
}
# RELEVANT[op][head]: the op uses the head.  The one table of relevance.
RELEVANT: tuple[tuple[bool, ...], ...] = tuple(
    tuple(head is Head.OP or head in _USES[op] for head in Head) for op in Op
)
# what the sampler writes into irrelevant heads
PLACEHOLDER: tuple[int, ...] = (0, 0, 0, 2, 1, 2, 0, 0)


class Outcome(IntEnum):
    """Outcome of an action."""

    EXECUTED = 0
    DECLINED = 1
    """Legal, but its gate did not let the seed pass."""
    VETOED = 2
    """Legal, but the last epoch of the env was not measured."""
    INVALID = 3
    """Against the masks; nothing happened."""
    ENDED = 4
    """The episode of the env is over; the env keeps its state."""


class Reason(IntEnum):
    """Reason why an action was not executed; the first that applies."""

    NONE = 0
    GATE_TRAIN = 1
    """Declined by the gate of this name."""
    GATE_BLEND = 2
    GATE_HOLD = 3
    GATE_FOSSILIZE = 5
    UNMEASURED = 10
    """Vetoed: the last epoch was not measured."""
    ENDED = 11
    """The episode is over."""
    OUT_OF_RANGE = 20
    """From here on: invalid."""
    OP_DISABLED = 21
    SLOT_DISABLED = 22
    WRONG_STAGE = 23
    """The op does not apply to a slot in this stage."""
    BUSY = 24
    """A seed is germinated or trains, or a slot cools down: no germination."""
    SEED_LIMIT = 25
    """As many seeds as `max_seeds`."""
    TOO_YOUNG = 26
    """To be pruned."""
    ALPHA_MOVING = 27
    """A ramp of alpha has not ended."""
    BLUEPRINT_NOT_ALLOWED = 28
