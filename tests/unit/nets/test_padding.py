"""Padded plans: few sizes for all plans, and no effect on any result beyond rounding."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states

from morphogen.nets import blocks
from morphogen.nets.plan import (
    BlueprintGroup,
    SlotPlan,
    bucket,
    build_slot_plans,
    capacity,
    empty_plan,
    join_plans,
    pad_plan,
)
from morphogen.steps.reset_step import init_seeds, new_seed_rows
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.testing.builders import tree_equality
from morphogen.vocab.blueprint import Blueprint

NET = small_states.net()
ENVS = 6


def trained(state, plan, batches=2):
    """An epoch under a plan -> state, metrics."""
    progress = start_epoch(state, plan, net=NET)
    for m in range(batches):
        batch = small_states.batch(NET, ENVS, seed=m)
        batch = batch.replace(images=batch.images.to(state.host.params.dtype))
        progress, _ = train_minibatch(
            progress, batch, plan, net=NET, spec=small_states.SPEC, lifecycle=small_states.LIFECYCLE
        )
    return finish_epoch(state, progress, plan, net=NET)


def validated(state, plan):
    split = small_states.split(NET)
    split = split.replace(images=split.images.to(state.host.params.dtype))
    return validate(state, split, *small_states.every(state, NET), plan, net=NET)


def alike(one, other):
    """Equal up to the rounding of float64, NaN where the other has NaN."""
    first, second = tree_equality.leaves(one), tree_equality.leaves(other)
    assert first.keys() == second.keys()
    for path, leaf in first.items():
        torch.testing.assert_close(leaf, second[path], rtol=1e-9, atol=1e-9, equal_nan=True, msg=path)


def joint(size):
    """Slot plans with this capacity for both halves of every blueprint, and for gates."""
    return build_slot_plans([size if at < 15 else 0 for _ in NET.slots for at in range(25)])


def full(plan):
    """A plan with capacity for every env in every group."""
    return replace(
        plan, train=joint(ENVS), evaluate=joint(8 * ENVS), births=(ENVS,) * 3, rows=(2 * ENVS, 4 * ENVS, 8 * ENVS)
    )


PADDINGS = {"buckets": lambda plan: pad_plan(plan, ENVS), "all": lambda plan: full(pad_plan(plan, ENVS))}


def sick(state):
    """The seed of the first env of every group in the first slot has a NaN in its parameters."""
    plan = small_states.plan(state, NET)
    slot_index = start_epoch(state, plan, net=NET).context.indices[0]
    assert slot_index is not None
    first = torch.stack([env[0] for env in slot_index.env])
    out = state.clone()
    out.seeds[NET.names[0]]["params"][first, 0] = torch.nan
    return out


@given(st.integers(0, 400), st.integers(1, 40))
def test_a_bucket_has_room_and_less_than_twice_what_is_needed(rows, envs):
    size = bucket(rows, envs)
    assert rows <= size <= max(2 * rows - 1, 0)
    assert bucket(size, envs) == size


def test_the_sizes_are_few():
    assert {bucket(rows, 12) for rows in range(97)} == {0, 1, 2, 4, 8, 12, 24, 48, 96}


@given(st.integers(0, 50))
def test_slot_plans_are_identified_by_their_numbers(seed):
    plan = small_states.plan(small_states.mixed(NET, ENVS, seed=seed), NET)
    assert build_slot_plans(capacity(plan.train)) == plan.train
    assert build_slot_plans(capacity(plan.evaluate)) == plan.evaluate


def test_padding_twice_is_padding_once():
    once = pad_plan(small_states.plan(small_states.mixed(NET, ENVS), NET), ENVS)
    assert pad_plan(once, ENVS) == once


def test_a_kind_that_is_anywhere_has_room_everywhere_for_one_env_in_eight():
    nothing = empty_plan(32, NET)
    one = replace(nothing, train=(SlotPlan((BlueprintGroup(Blueprint.NORM, 5, 0),), 0), *nothing.train[1:]))
    wide = pad_plan(one, 32)
    assert wide.train == (
        SlotPlan((BlueprintGroup(Blueprint.NORM, 8, 4),), 4),
        *[SlotPlan((BlueprintGroup(Blueprint.NORM, 4, 4),), 4)] * 2,
    )
    assert wide.evaluate == (SlotPlan((BlueprintGroup(Blueprint.NORM, 4, 4),), 4),) * 3
    assert wide.rows == (64, 64, 64)


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_joined_plans_have_the_capacity_of_the_largest_and_no_more(seeds):
    plans = [small_states.plan(small_states.mixed(NET, ENVS, seed=seed), NET) for seed in seeds]
    joint = join_plans(plans)
    for numbers in (lambda plan: capacity(plan.train), lambda plan: capacity(plan.evaluate), lambda plan: plan.rows):
        columns = zip(*(numbers(plan) for plan in plans), strict=True)
        assert list(numbers(joint)) == [sorted(column)[-1] for column in columns]


def test_envs_without_seeds_need_no_capacity():
    plan = small_states.plan(small_states.fresh(NET, ENVS), NET)
    assert replace(pad_plan(plan, ENVS), padded=False) == plan


@pytest.mark.slow
@pytest.mark.parametrize("pad", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ill", [False, True], ids=["sound", "sick"])
def test_padding_changes_what_is_trained_and_measured_by_rounding_only(seed, ill, pad):
    state = small_states.double(small_states.mixed(NET, ENVS, seed=seed))
    state = sick(state) if ill else state
    plan = small_states.plan(state, NET)
    exact, rounded = (trained(state, one) for one in (plan, pad(plan)))
    alike(exact, rounded)
    assert ill == any(leaf.isnan().any() for leaf in exact[0].seeds.values(True, True))
    alike(validated(exact[0], plan), validated(rounded[0], pad(plan)))


@pytest.mark.parametrize("ill", [False, True], ids=["sound", "sick"])
def test_the_gradient_of_a_padded_row_is_exactly_0(ill, monkeypatch):
    observed, gauge = [], blocks.grad_stats
    monkeypatch.setattr(blocks, "grad_stats", lambda *args, **options: observed.append(args) or gauge(*args, **options))
    state = small_states.mixed(NET, ENVS, seed=1)
    trained(sick(state) if ill else state, full(pad_plan(small_states.plan(state, NET), ENVS)), batches=1)
    out_grad, index, _ = observed[0]
    spare = (index.owner >= ENVS * len(NET.slots))[index.tensor]
    assert 0 < spare.sum() < len(spare)
    assert (out_grad[spare] == 0).all()
    assert (out_grad[~spare] != 0).any()


def test_spare_births_create_no_seed():
    state = small_states.mixed(NET, ENVS)
    born = torch.zeros(ENVS, 3, dtype=torch.bool)
    born[[1, 3, 4], 0], born[2, 1] = True, True
    plan = small_states.plan(state, NET, born)
    results = []
    for one in (plan, pad_plan(plan, ENVS)):
        rows = new_seed_rows(born, one)
        noise = tuple(
            small_states.noise(ENVS, size, seed=s)[where.clamp(max=ENVS - 1)]
            for s, (where, size) in enumerate(zip(rows, NET.seed_sizes, strict=True))
        )
        results.append(init_seeds(state, rows, noise, net=NET))
    assert [len(rows) for rows in new_seed_rows(born, pad_plan(plan, ENVS))] == [4, 1, 0]
    assert (results[0] == results[1]).all()
