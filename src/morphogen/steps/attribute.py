"""attribute: what the validation of this epoch says about every seed, written into slots and signals."""

import torch
from torch import Tensor

from morphogen.config.spec import SignalSpec
from morphogen.rules.attribution import attribution, measuring
from morphogen.rules.signals import update_signals
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import Attribution, Validation
from morphogen.state.tree_ops import replace

NEWEST = 0.3  # weight of the newest change in the velocity of a contribution


def attribute(
    state: EnvState, validation: Validation, *, every: int, episode_length: int, signal_spec: SignalSpec
) -> tuple[EnvState, Attribution]:
    """Measure the seeds and remember it.  `every`, `episode_length`: which epochs are skipped (`rules.attribution`).

    Shapes: state, validation [E] -> (state, Attribution [E]).
    Promise: only the measurement leaves of slots and the signals change; what is not finite enters neither.
    """
    full = measuring(state.clock.epoch, every=every, episode_length=episode_length)
    found = attribution(validation.accuracy, validation.coalition, validation.evaluated, state.slots, full=full)
    signals = update_signals(state.signals, validation.loss, found, spec=signal_spec)
    return replace(state, slots=_remember(state.slots, found), signals=signals), found


def _remember(slots: Slots, found: Attribution) -> Slots:
    fresh, known = found.contribution_valid, slots.contribution_valid
    return replace(
        slots,
        contribution=torch.where(fresh, found.contribution, slots.contribution),
        contribution_valid=fresh | known,
        velocity=torch.where(fresh, _velocity(slots, found.contribution), slots.velocity),
        velocity_valid=torch.where(fresh, known, slots.velocity_valid),
        since_measured=torch.where(known & ~fresh, slots.since_measured + 1, 0),
        interaction_sum=found.interaction_sum,
        boost_received=found.boost_received,
        interaction_valid=found.interaction_valid,
    )


def _velocity(slots: Slots, contribution: Tensor) -> Tensor:
    """Smoothed change of a contribution per epoch; 0 until there are two measurements.  [E, S]."""
    gap = slots.since_measured + 1
    change = (contribution - slots.contribution) / gap
    return torch.where(slots.contribution_valid, (1 - NEWEST) * slots.velocity + NEWEST * change, 0.0)
