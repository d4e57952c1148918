"""The white-box task in numbers: which blueprint pays in which host, from when on, and how much.

What is written here is all there is to know about the task, so that the best policy is known too.
"""

from morphogen.config.groups import LifecycleSpec
from morphogen.vocab.action import TEMPO_EPOCHS, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Gate

BASE_POINTS = 20.0  # points of a host alone
GAIN_POINTS = 60.0  # that the right blueprint adds at full alpha, if it was germinated as soon as its host was ripe
DELAY_PENALTY = 0.05  # share of it that is lost per epoch of delay
MATURITY_EPOCHS = 10  # epochs until a host is ripe, per label noise of 1
# The right blueprint for hosts up to a width; they differ in size, so that one price does not suit all.
BEST_BLUEPRINT: tuple[tuple[float, Blueprint], ...] = (
    (0.5, Blueprint.CONV_LIGHT),
    (0.75, Blueprint.CONV_HEAVY),
    (1.0, Blueprint.BOTTLENECK),
)


def epochs_to_fossilize(spec: LifecycleSpec) -> int:
    """Epochs from germination to fossilization at the fastest, where gates are permissive."""
    by_hand = [int(gate.name not in spec.auto_forward) for gate in (Gate.TRAIN, Gate.HOLD)]
    blends = by_hand[0] + max(1, spec.min_training_epochs)
    holds = blends + TEMPO_EPOCHS[Tempo.FAST] - 1 + by_hand[1]  # a ramp moves in the epoch in which it begins
    return holds + 1
