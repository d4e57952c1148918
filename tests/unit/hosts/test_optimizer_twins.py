"""Hosts of the package against their twins from plain modules, by every optimiser and schedule."""

from typing import NamedTuple

import pytest
import torch
from support import small_states
from support.extras import needs_extra, rows_of_extra
from support.module_nets import Cnn

import morphogen as mg
from morphogen.hosts.net import Net
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.schedule import build_schedule
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.testing.builders.tree_equality import leaves

pytestmark = needs_extra("modules")
EPOCHS = 3
MINIBATCHES = 2
NEAR = {"rtol": 1e-10, "atol": 1e-10}


class Pair(NamedTuple):
    """A host of the package, the host of a plain module, and the blueprints of both by code."""

    built_in: mg.Host
    twin: mg.Host
    slots: tuple[str, ...]
    kinds: tuple[str, ...] = ()


def cnn() -> Pair:
    slots = {"act0": "r0c0", "pool": "r1c0", "act1": "r0c1"}
    twin = mg.host_from_module(Cnn, slots=slots, example=torch.zeros(1, 8, 8))
    return Pair(small_states.DIGITS, twin, ("r0c0", "r0c1", "r1c0"))


def transformer() -> Pair:
    from morphogen.extras.text.plain_text import PlainTransformer

    host = small_states.token_host()
    twin = mg.host_from_module(
        lambda: PlainTransformer(host, None),
        slots={f"layers.{i}": f"r0c{i}" for i in range(3)},
        example=torch.zeros(host.input_shape, dtype=torch.int64),
        causal=True,
    )
    kinds = small_states.token_net(host).kinds
    slots = tuple(slot.name for slot in host.all_slots)
    return Pair(host, twin, slots, tuple(kind and host.module_name(kind) for kind in kinds))


PAIRS = {"cnn": cnn, **rows_of_extra("text", lambda: {"transformer": transformer})}


def play(net, state, spec):
    """Train and validate for some epochs; return the state and every validation."""
    plan, asked = small_states.plan(state, net), small_states.every(state, net)
    split = small_states.like(state, small_states.split(net, 12))
    measured = []
    for epoch in range(EPOCHS):
        progress = start_epoch(state, plan, net=net)
        for m in range(MINIBATCHES):
            batch = small_states.batch(net, len(state), 6, seed=10 * epoch + m)
            progress, _ = train_minibatch(
                progress,
                small_states.like(state, batch),
                plan,
                net=net,
                spec=spec,
                lifecycle=small_states.LIFECYCLE,
            )
        state, _ = finish_epoch(state, progress, plan, net=net)
        state = state.replace(clock=state.clock.replace(epoch=state.clock.epoch + 1))
        measured.append(validate(state, split, *asked, plan, net=net))
    return state, measured


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimizer", "schedule"),
    [
        ("cnn", "sgd", "constant"),
        ("cnn", "sgd", "warmup_cosine"),
        ("cnn", "adamw", "cosine"),
        *[(name, "adamw", "warmup_cosine") for name in PAIRS if name != "cnn"],
    ],
)
def test_a_host_and_its_twin_train_to_the_same_numbers(name, optimizer, schedule):
    """All blueprints by all algorithms in all stages."""
    pair = PAIRS[name]()
    spec = mg.HostSpec(lr=0.02, seed_lr=0.01, optimizer=optimizer, schedule=schedule)
    how = {
        "optimizer": OPTIMIZERS[optimizer],
        "schedule": build_schedule(spec, MINIBATCHES, EPOCHS),
    }
    ours = Net(pair.built_in, pair.built_in.pick_slots(pair.slots), **how)
    twin = Net(pair.twin, pair.twin.pick_slots(pair.slots), pair.kinds, **how)
    assert pair.kinds or twin.kinds == ours.kinds
    state = small_states.double(small_states.nudge(small_states.all_kinds(ours), ours))
    (one, measured), (other, observed) = play(ours, state, spec), play(twin, state, spec)
    assert not one.host.params.isclose(state.host.params).all(-1).any()
    for leaf, expected in leaves(one).items():
        torch.testing.assert_close(leaves(other)[leaf], expected, **NEAR)
    for mine, theirs in zip(measured, observed, strict=True):
        torch.testing.assert_close(theirs.loss, mine.loss, **NEAR)
        assert theirs.accuracy.equal(mine.accuracy)
