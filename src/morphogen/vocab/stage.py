"""The life of a slot: stages, the transition table, gates and their checks, alpha modes and curves,
faults.
"""

from enum import IntEnum, IntFlag


class Stage(IntEnum):
    """Stage of a slot.  The codes are contiguous: the one-hot index is the code.

    Example:
        >>> import morphogen as mg
        >>> state, _ = mg.make("tiny", envs=1, seed=0).reset()
        >>> [mg.Stage(code).name for code in state.slots.stage[0].tolist()]
        ['DORMANT', 'DORMANT']
    """

    UNKNOWN = 0
    """Placeholder for "no previous stage"; never a stage."""
    DORMANT = 1
    """Empty slot."""
    GERMINATED = 2
    """Seed exists, does not run."""
    TRAINING = 3
    """Incubation at alpha 0."""
    BLENDING = 4
    """Alpha ramps or rests at a partial target."""
    HOLDING = 5
    """Alpha 1, waiting for a decision."""
    FOSSILIZED = 6
    """Kept for good, alpha 1, still trained."""
    PRUNED = 7
    """Seed removed; cooling."""
    EMBARGOED = 8
    """Cooling."""
    RESETTING = 9
    """Last epoch of cooling."""


OCCUPIED = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
ACTIVE = (Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
BLENDED = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
COOLING = (Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING)

# TRANSITIONS[stage] = stages it may become next; staying is not a transition.
TRANSITIONS: dict[Stage, tuple[Stage, ...]] = {
    Stage.UNKNOWN: (),
    Stage.DORMANT: (Stage.GERMINATED,),
    Stage.GERMINATED: (Stage.TRAINING, Stage.PRUNED),
    Stage.TRAINING: (Stage.BLENDING, Stage.PRUNED),
    Stage.BLENDING: (Stage.HOLDING, Stage.PRUNED),
    Stage.HOLDING: (Stage.FOSSILIZED, Stage.BLENDING, Stage.PRUNED),
    Stage.FOSSILIZED: (),
    Stage.PRUNED: (Stage.EMBARGOED,),
    Stage.EMBARGOED: (Stage.RESETTING,),
    Stage.RESETTING: (Stage.DORMANT,),
}


class AlphaMode(IntEnum):
    """Mode of the alpha controller of a slot."""

    HOLD, UP, DOWN = range(3)


class Curve(IntEnum):
    """Shape of an alpha ramp."""

    NONE, LINEAR, COSINE, SIGMOID = range(4)


DEFAULT_STEEPNESS = 12.0


class Algorithm(IntEnum):
    """Algorithm that blends the delta of a seed into the host."""

    NONE, ADD, MULTIPLY, GATE = range(4)


class Gate(IntEnum):
    """The question a slot is asked before it moves up."""

    NONE = 0
    TRAIN = 1
    """GERMINATED -> TRAINING."""
    BLEND = 2
    """TRAINING -> BLENDING."""
    HOLD = 3
    """BLENDING -> HOLDING."""
    FOSSILIZE = 5
    """HOLDING -> FOSSILIZED."""


GATE_TARGET: dict[Gate, Stage] = {
    Gate.TRAIN: Stage.TRAINING,
    Gate.BLEND: Stage.BLENDING,
    Gate.HOLD: Stage.HOLDING,
    Gate.FOSSILIZE: Stage.FOSSILIZED,
}


GATE_SOURCE: dict[Gate, Stage] = {
    Gate.TRAIN: Stage.GERMINATED,
    Gate.BLEND: Stage.TRAINING,
    Gate.HOLD: Stage.BLENDING,
    Gate.FOSSILIZE: Stage.HOLDING,
}


class Check(IntEnum):
    """Bit numbers of the checks a gate can fail."""

    ILLEGAL_TRANSITION = 0
    NOT_GERMINATED = 1
    TOO_EARLY = 2
    GRADIENT_UNMEASURED = 3
    EXPLODING = 4
    UNHEALTHY_GRADIENT = 5
    TOO_LITTLE_IMPROVEMENT = 6
    RATIO_UNMEASURED = 7
    RATIO_LOW = 8
    TARGET_NOT_FULL = 9
    NOT_AT_TARGET = 10
    CONTRIBUTION_UNMEASURED = 11
    CONTRIBUTION_LOW = 12


class Panic(IntEnum):
    """Why the governor rolled an env back."""

    NONE, NONFINITE, CHANCE, DIVERGENCE, STARVED = range(5)


class Removal(IntEnum):
    """Cause of the removal of a seed."""

    NONE, ACTION, RAMP, GOVERNOR = range(4)


class Fault(IntFlag):
    """Faults of one env in one epoch; a step never raises for them."""

    NONE = 0
    # a minibatch was not applied because host, loss or a blended seed was not finite, by no
    # overflow
    SKIPPED_STEP = 1
    SEED_SKIPPED = 2  # an incubating seed skipped its own step
    VALIDATION = 4  # validation loss or accuracy not finite
    OBSERVATION = 8  # a raw feature was not finite
    ROLLED_BACK = 16  # the governor rolled the env back
    POLICY = 32  # value or log-probability of the action not finite
