"""Schema of the state: table, classes and empty state agree."""

import dataclasses

import pytest
import torch
from tensordict import TensorDict

from morphogen.state import env, rng, schema
from morphogen.state.tree_ops import replace
from morphogen.testing.builders import tree_equality

SIZES = schema.Sizes(
    3, ("r0c0", "r0c1"), host_params=7, seed_params=(5, 9), window=4, classes=10, table=6
)
CLASSES = {
    "host": env.HostState,
    "slots": env.Slots,
    "signals": env.Signals,
    "instance": env.Instance,
    "clock": env.Clock,
}


def fresh():
    ledger = TensorDict({"phi": torch.zeros(3)}, batch_size=[3])
    return schema.empty_state(SIZES, rng.env_keys(1, 0, 3), ledger)


@pytest.mark.parametrize("part", CLASSES)
def test_the_table_lists_exactly_the_leaves_of_the_class(part):
    fields = dataclasses.fields(CLASSES[part])
    declared = [field.name for field in fields if field.type is torch.Tensor]
    assert sorted(leaf.name for leaf in schema.PARTS[part]) == sorted(declared)


def test_a_fresh_state_holds_the_empty_values():
    state = fresh()
    assert (state.slots.stage == 1).all()
    assert (state.slots.blueprint == -1).all()
    assert (state.slots.alpha_steepness == 12.0).all()
    assert (state.signals.last_op == -1).all()
    assert (state.governor.snapshot_epoch == -1).all()
    assert not state.slots.gradient_valid.any()
    assert (state.seeds["r0c1", "params"] == torch.zeros(3, 9)).all()


def test_no_leaf_of_a_state_is_a_python_object():
    assert all(isinstance(leaf, torch.Tensor) for leaf in fresh().values(True, True))


def test_a_state_with_new_parts_shares_the_others_and_leaves_the_old_one_as_it_was():
    state = fresh()
    slots = state.slots.replace(stage=state.slots.stage + 1)
    result = replace(state, slots=slots)
    assert type(result) is type(state)
    assert torch.equal(result.slots.stage, state.slots.stage + 1)
    assert result.batch_size == state.batch_size
    before, after = tree_equality.leaves(state), tree_equality.leaves(result)
    assert before.keys() == after.keys()
    assert {path for path, leaf in after.items() if leaf is not before[path]} == {"slots.stage"}
    with pytest.raises(
        AttributeError, match=r"EnvState: expected some of host, seeds, slots.* got hots"
    ):
        replace(state, hots=slots)
