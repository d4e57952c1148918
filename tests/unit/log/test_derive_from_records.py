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
from morphogen.vocab.stage import Removal, Stage

S = Stage
ENVS, LENGTH, SICK, AT = 16, 20, 5, 11


@functools.cache
def played(auto: tuple[str, ...]):
    """Set-up, epochs and records of a random episode in which one host is lost on the way."""
    quick = {
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
        "min_gradient_health": 0.0,
    }
    life = LifecycleSpec(**quick, auto_forward=auto)
    setup = tiny_setup(envs=ENVS, episode_length=LENGTH, lifecycle=life)

    def lose(t, state):
        sick = (torch.arange(ENVS) == SICK).unsqueeze(-1) & (t == AT)
        return state.replace(
            host=state.host.replace(params=torch.where(sick, torch.nan, state.host.params))
        )

    epochs = live(world_of(setup), "random", change=lose)
    return setup, epochs, [complete_record(epoch) for epoch in epochs]


every_life = pytest.mark.parametrize(
    "auto", [(), ("TRAIN", "HOLD")], ids=["by action", "auto-forward"]
)


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


def reported(auto):
    """All events that are derived from the records, with their epoch."""
    setup, _, records = played(auto)
    return [(event.epoch, event) for event in events_of(records, build_facts(setup))]


@pytest.mark.slow
@every_life
def test_every_change_of_stage_is_told_by_the_record(auto):
    setup, epochs, _ = played(auto)
    names = list(setup.net.names)
    changes = [
        (t, e.env, names.index(e.slot), e.data.cause, S[e.data.from_], S[e.data.to])
        for t, e in reported(auto)
        if isinstance(e.data, StageChanged)
    ]
    assert sorted(changes) == sorted(moves(epochs))
    assert {to for *_, to in changes} >= {S.GERMINATED, S.TRAINING, S.BLENDING, S.PRUNED, S.DORMANT}


@every_life
def test_who_removed_a_seed_is_told_by_the_record(auto):
    _, epochs, records = played(auto)
    cause = {"action": Removal.ACTION, "tick": Removal.RAMP, "govern": Removal.GOVERNOR}
    removed = {(t, e, s): cause[by] for t, e, s, by, _, to in moves(epochs) if to is S.PRUNED}
    found = {
        (t, e, s): Removal(row["removal"][e, s])
        for t, row in enumerate(records)
        for e, s in np.argwhere(row["removal"] != Removal.NONE).tolist()
    }
    assert found == removed
    assert Removal.ACTION in removed.values()


@every_life
def test_a_rollback_is_told_by_the_record(auto):
    _, epochs, records = played(auto)
    found = [(t, e.env, e.data) for t, e in reported(auto) if isinstance(e.data, RolledBack)]
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


@every_life
def test_while_rewards_are_computed_exactly_the_slots_that_moved_have_no_epoch_in_their_stage(auto):
    """A slot without a seed stays at 0, and a fossil that a rollback restored has the count of its
    snapshot.
    """
    _, epochs, _ = played(auto)
    for epoch in epochs:
        stages = points(epoch)
        moved = (stages[0] != stages[1]) | (stages[1] != stages[2]) | (stages[2] != stages[3])
        filled = stages[3] != S.DORMANT
        fossil = (stages[3] == S.FOSSILIZED) & epoch.step.report.rolled_back.numpy()[:, None]
        counted = epoch.step.governed.slots.epochs_in_stage.numpy()
        assert ((counted == 0) == moved)[filled & ~fossil].all()
        shown = epoch.after.slots.epochs_in_stage.numpy()
        assert (shown >= 1)[filled].all()
        assert not shown[~filled].any()
