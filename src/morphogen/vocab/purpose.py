"""Purposes of random numbers: one code per purpose, part of every stream."""

from enum import IntEnum


class Purpose(IntEnum):
    """Purposes of draws.  Two purposes never share a number."""

    POLICY_INIT = 0
    INSTANCE = 1
    INSTANCE_HELD_OUT = 2
    HOST_INIT = 3
    SEED_INIT = 4
    GATE_INIT = 5
    SUBSET = 6
    LABEL_NOISE = 7
    DATA = 8
    AUGMENT = 9
    DROPOUT = 10
    ACTION = 11
    PPO_MINIBATCH = 12
    BASELINE = 13
    SPLIT = 14
    ATTRIBUTION = 15
    BOOTSTRAP = 16
    SIBLING = 17
    INSTANCE_TEST = 18
    REGIME_LENGTH = 19
    REGIME = 20
    VIEW_NOISE = 21
