"""attribute: contribution of every seed from the validation of this epoch, stored in slots and signals."""

import torch

from morphogen.config.spec import SignalSpec
from morphogen.rules.attribution import attribution, is_measured_epoch
from morphogen.rules.signals import update_signals
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, Validation
from morphogen.state.tree_ops import replace

NEWEST_WEIGHT = 0.3  # weight of the newest change in the velocity of a contribution


def attribute(
    state: EnvState, validation: Validation, *, every: int, episode_length: int, signal_spec: SignalSpec
) -> tuple[EnvState, Attribution]:
    """Compute the attribution and store it in the state.  `every`, `episode_length`: as in `is_measured_epoch`.

    Shapes: state, validation [E] -> (state, Attribution [E]).
    Promise: only the measurement leaves of slots and the signals change; non-finite values enter neither.
    """
    full = is_measured_epoch(state.clock.epoch, every=every, episode_length=episode_length)
    measured = attribution(validation.accuracy, validation.coalition, validation.evaluated, state.slots, full=full)
    signals = update_signals(state.signals, validation.loss, measured, spec=signal_spec)
    slots = state.slots
    fresh, known = measured.contribution_valid, slots.contribution_valid
    # A velocity is the smoothed change per epoch, 0 before the second measurement.
    change = (measured.contribution - slots.contribution) / (slots.since_measured + 1)
    velocity = torch.where(known, (1 - NEWEST_WEIGHT) * slots.velocity + NEWEST_WEIGHT * change, 0.0)
    slots = replace(
        slots,
        contribution=torch.where(fresh, measured.contribution, slots.contribution),
        contribution_valid=fresh | known,
        velocity=torch.where(fresh, velocity, slots.velocity),
        velocity_valid=torch.where(fresh, known, slots.velocity_valid),
        since_measured=torch.where(known & ~fresh, slots.since_measured + 1, 0),
        interaction_sum=measured.interaction_sum,
        boost_received=measured.boost_received,
        interaction_valid=measured.interaction_valid,
    )
    return replace(state, slots=slots, signals=signals), measured
