"""Warm-up: every unit of a run compiled before its first round, so that a failure comes before
anything is written.
"""

import warnings

import torch

from morphogen.env.action_control import ActionControl
from morphogen.env.episodes import first_carry, run_epoch
from morphogen.env.setup import Setup
from morphogen.env.units import Units
from morphogen.train.loop import Parts, Scheduler


def warm_up(setup: Setup, control: ActionControl | None, compiled: Units, first: int) -> None:
    """Compile every unit that the rounds of a run call, and keep none of their results.

    Args:
        control: of the run.
        compiled: units of the run.
        first: round that the run starts from.

    Raises: CompileError where the compiler fails; under `auto` all units run eager instead.
    """
    scheduler = Scheduler(setup, Parts(control=control, compiled=compiled))
    kinds = {first, max(first, scheduler.demonstrated)}  # another policy acts in the first rounds
    with torch.no_grad(), warnings.catch_warnings():
        # of a run that turns eager: `failure` says why
        warnings.simplefilter("ignore", RuntimeWarning)
        for index in sorted(kinds & set(range(setup.spec.rounds))):
            scheduler.move_to(index, 0)
            env = scheduler.env
            arm = scheduler.actor
            run_epoch(env, arm.policy, arm.params, first_carry(env, arm.policy, index))
    scheduler.env.close()
