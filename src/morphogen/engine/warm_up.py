"""Warm-up: every unit of a run compiled before its first round, so that a failure comes before anything is written."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from morphogen.engine.compile import CompiledUnits
from morphogen.engine.episodes import Rollout, run_epoch
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import Setup
from morphogen.learn.exchange import Exchange
from morphogen.learn.learner import Round
from morphogen.nets.policy import NetworkPolicy

C = TypeVar("C")


def warm_up(setup: Setup, parts: Parts, compiled: CompiledUnits, first: int = 0) -> None:
    """Compile every unit that the rounds of a run call, and keep none of their results.

    Args:
        parts: of the run.
        compiled: units of the run.
        first: round that the run starts from.

    Raises: CompileError where the compiler fails; under `auto` all units run eager instead.
    """
    scheduler = Scheduler(setup, Parts(control=parts.control, compiled=compiled, collectives=parts.collectives))
    kinds = {first, max(first, scheduler.demonstrated)}  # another policy acts in the first rounds
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a run that turns eager: `failure` says why
        for index in sorted(kinds & set(range(setup.spec.rounds))):
            scheduler.move_to(index, 0)
            _run_shortly(scheduler)
    scheduler.env.close()


def _run_shortly(scheduler: Scheduler) -> None:
    """Run one epoch and one step of the update of the round at hand.

    Ranks call no collective here: one that fails to compile would leave the others waiting.
    """
    spec, env, arm = scheduler.setup.spec, scheduler.env, scheduler.actor
    epoch = run_epoch(env, *env.reset(scheduler.round), arm.policy, params=arm.params, hidden=scheduler.hidden)
    env.observe(epoch.after)
    if scheduler.learner is None or not isinstance(scheduler.policy, NetworkPolicy):
        return
    exchange = Exchange(scheduler.exchange.rank, scheduler.exchange.ranks)
    rollout = scheduler.rollout
    for t in range(spec.episode_length):
        rollout.write(t, epoch, scheduler.segment)
    if exchange.ranks == 1:
        rollout = _repeat_envs(rollout, spec.envs)
    turn = Round(spec, scheduler.round, scheduler.compiled.unit, exchange, _once, scheduler.siblings)
    scheduler.learner.update(scheduler.learned, rollout.rows, policy=scheduler.policy, round=turn)


def _repeat_envs(rollout: Rollout, envs: int) -> Rollout:
    """Return rows of this number of envs: those of the rollout, again and again."""
    own = rollout.rows.shape[1]
    if own == envs:
        return rollout
    rows: Any = rollout.rows
    slots = rows["contribution"].shape[-1]
    wider = Rollout(rows.shape[0], envs=envs, slots=slots, device=rows["reward"].device)
    wider.rows.update_(rows[:, torch.arange(envs, device=rows["reward"].device) % own])
    return wider


def _once(body: Callable[[C], C], carry: C, times: int) -> C:
    """Run the first pass of a loop alone."""
    del times
    return body(carry)
