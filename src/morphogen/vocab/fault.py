"""Faults inside a step: bits of the per-env fault code in the record."""

from enum import IntFlag


class Fault(IntFlag):
    """Faults of one env in one epoch; a step never raises for them."""

    NONE = 0
    SKIPPED_STEP = 1  # a minibatch was not applied because host, loss or a blended seed was not finite
    SEED_SKIPPED = 2  # an incubating seed skipped its own step
    VALIDATION = 4  # validation loss or accuracy not finite
    OBSERVATION = 8  # a raw feature was not finite
    ROLLED_BACK = 16  # the governor rolled the env back
    POLICY = 32  # value or log-probability of the action not finite
