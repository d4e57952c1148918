"""Real episodes, derived from their records alone."""

import functools

import numpy as np
import pytest
import torch
from support.random_records import events_of
from support.small_runs import complete_record, live, tiny_setup, world_of

from morphogen.config.groups import LifecycleSpec
from morphogen.log.kinds.epoch import RolledBack, StageChanged
from morphogen.train.reporter import build_facts
from morphogen.vocab.stage import Stage

S = Stage
ENVS, LENGTH, SICK, AT = 16, 20, 5, 11


@functools.cache
def played():
    """Set-up, epochs and records of a random episode in which one host is lost on the way."""
    quick = {
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
        "min_gradient_health": 0.0,
    }
    life = LifecycleSpec(**quick, auto_forward=("TRAIN", "HOLD"))
    setup = tiny_setup(envs=ENVS, episode_length=LENGTH, lifecycle=life)

    def lose(t, state):
        sick = (torch.arange(ENVS) == SICK).unsqueeze(-1) & (t == AT)
        return state.replace(
            host=state.host.replace(params=torch.where(sick, torch.nan, state.host.params))
        )

    epochs = live(world_of(setup), "random", change=lose)
    return setup, epochs, [complete_record(epoch) for epoch in epochs]


def points(epoch):
    """The stages at the four moments of an epoch, from the states."""
    return [
        part.slots.stage.numpy()
        for part in (epoch.before, epoch.step.acted, epoch.step.ticked, epoch.step.governed)
    ]


def moves(epochs):
    """Every change of stage, from the states: (epoch, env, slot, cause, from, to)."""
    found = []
    for t, epoch in enumerate(epochs):
        stages = points(epoch)
        for cause, was, now in zip(("action", "tick", "govern"), stages, stages[1:], strict=False):
            found += [
                (t, e, s, cause, S(was[e, s]), S(now[e, s]))
                for e, s in np.argwhere(was != now).tolist()
            ]
    return found


def reported():
    """All events that are derived from the records, with their epoch."""
    setup, _, records = played()
    return [(event.epoch, event) for event in events_of(records, build_facts(setup))]


@pytest.mark.slow
def test_every_change_of_stage_is_told_by_the_record():
    setup, epochs, _ = played()
    names = list(setup.net.names)
    changes = [
        (t, e.env, names.index(e.slot), e.data.cause, S[e.data.from_], S[e.data.to])
        for t, e in reported()
        if isinstance(e.data, StageChanged)
    ]
    assert sorted(changes) == sorted(moves(epochs))
    assert {to for *_, to in changes} >= {S.GERMINATED, S.TRAINING, S.BLENDING, S.PRUNED, S.DORMANT}


def test_a_rollback_is_told_by_the_record():
    _, epochs, records = played()
    found = [(t, e.env, e.data) for t, e in reported() if isinstance(e.data, RolledBack)]
    assert [(t, env) for t, env, _ in found] == [(AT, SICK)]
    _, _, data = found[0]
    back = epochs[AT]
    assert (data.reason, data.loss) == ("nonfinite", None)
    assert data.seeds_pruned == sum(
        (t, e, by) == (AT, SICK, "govern") for t, e, _, by, _, _ in moves(epochs)
    )
    saved = records[data.snapshot_epoch] if data.snapshot_epoch >= 0 else None
    was = back.before.governor.host.params[SICK]
    assert torch.equal(back.after.host.params[SICK], was)
    if saved is not None:
        assert torch.equal(epochs[data.snapshot_epoch].after.host.params[SICK], was)
