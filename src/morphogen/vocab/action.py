"""Actions: heads, their values, which op uses which head, outcomes and reasons."""

from enum import IntEnum

from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Curve


class Op(IntEnum):
    """Operation of an env in this epoch."""

    WAIT = 0
    GERMINATE = 1
    SET_ALPHA_TARGET = 2
    PRUNE = 3
    FOSSILIZE = 4
    ADVANCE = 5


class Style(IntEnum):
    """Ramp curve and blend algorithm of a seed."""

    LINEAR_ADD = 0
    LINEAR_MULTIPLY = 1
    SIGMOID_ADD = 2
    GATED_GATE = 3


class Tempo(IntEnum):
    """Length of the first ramp."""

    FAST = 0
    STANDARD = 1
    SLOW = 2


class AlphaTarget(IntEnum):
    """End of a ramp."""

    HALF = 0
    SEVENTY = 1
    FULL = 2


class AlphaSpeed(IntEnum):
    """Length of a later ramp."""

    INSTANT = 0
    FAST = 1
    MEDIUM = 2
    SLOW = 3


class AlphaCurve(IntEnum):
    """Shape of a later ramp."""

    LINEAR = 0
    COSINE = 1
    SIGMOID_GENTLE = 2
    SIGMOID = 3
    SIGMOID_SHARP = 4


STYLE_CURVE: tuple[Curve, ...] = (Curve.LINEAR, Curve.LINEAR, Curve.SIGMOID, Curve.LINEAR)
STYLE_ALGORITHM: tuple[Algorithm, ...] = (Algorithm.ADD, Algorithm.MULTIPLY, Algorithm.ADD, Algorithm.GATE)
TEMPO_EPOCHS: tuple[int, ...] = (3, 5, 8)
ALPHA_TARGETS: tuple[float, ...] = (0.5, 0.7, 1.0)
SPEED_TICKS: tuple[int, ...] = (0, 3, 5, 8)
CURVE_SHAPE: tuple[Curve, ...] = (Curve.LINEAR, Curve.COSINE, Curve.SIGMOID, Curve.SIGMOID, Curve.SIGMOID)
CURVE_STEEPNESS: tuple[float, ...] = (12.0, 12.0, 6.0, 12.0, 24.0)


class Head(IntEnum):
    """Columns of an action, in sampling order."""

    OP = 0
    SLOT = 1
    BLUEPRINT = 2
    STYLE = 3
    TEMPO = 4
    ALPHA_TARGET = 5
    ALPHA_SPEED = 6
    ALPHA_CURVE = 7

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
SIZES: dict[Head, int] = {head: len(values) for head, values in VALUES.items()}  # SLOT has S values

_USES: dict[Op, tuple[Head, ...]] = {
    Op.WAIT: (),
    Op.GERMINATE: (Head.SLOT, Head.BLUEPRINT, Head.STYLE, Head.TEMPO, Head.ALPHA_TARGET),
    Op.SET_ALPHA_TARGET: (Head.SLOT, Head.STYLE, Head.ALPHA_TARGET, Head.ALPHA_SPEED, Head.ALPHA_CURVE),
    Op.PRUNE: (Head.SLOT, Head.ALPHA_SPEED, Head.ALPHA_CURVE),
    Op.FOSSILIZE: (Head.SLOT,),
    Op.ADVANCE: (Head.SLOT,),
}
# RELEVANT[op][head]: the op uses the head.  The one table of relevance.
RELEVANT: tuple[tuple[bool, ...], ...] = tuple(
    tuple(head is Head.OP or head in _USES[op] for head in Head) for op in Op
)
PLACEHOLDER: tuple[int, ...] = (0, 0, 0, 2, 1, 2, 0, 0)  # what the sampler writes into irrelevant heads


class Outcome(IntEnum):
    """Outcome of an action."""

    EXECUTED = 0
    DECLINED = 1
    VETOED = 2
    INVALID = 3


class Reason(IntEnum):
    """Why an action was not executed."""

    NONE = 0
    GATE_TRAIN = 1
    GATE_BLEND = 2
    GATE_HOLD = 3
    GATE_FOSSILIZE = 5
    UNMEASURED = 10
    OUT_OF_RANGE = 20
    OP_DISABLED = 21
    SLOT_DISABLED = 22
    WRONG_STAGE = 23
    BUSY = 24
    SEED_LIMIT = 25
    TOO_YOUNG = 26
    ALPHA_MOVING = 27
    BLUEPRINT_NOT_ALLOWED = 28
