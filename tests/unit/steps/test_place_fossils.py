"""Networks that are planted: the fossils of a lifecycle without its epochs."""

import torch
from support.slot_invariants import broken_invariants
from support.small_states import DIGITS, fresh, net

from morphogen.steps.reset_step import place_fossils
from morphogen.testing.builders.tree_equality import trees_equal
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.stage import Algorithm, Stage

NORM = int(Blueprint.NORM)
LIGHT = int(Blueprint.CONV_LIGHT)


def test_planting_fills_the_named_slots_with_sound_fossils_and_leaves_all_else():
    network = net(DIGITS)
    state = fresh(network, 3)
    blueprint = torch.tensor([[NORM, -1, LIGHT], [-1, -1, -1], [-1, NORM, -1]])
    algorithm = torch.where(blueprint >= 0, int(Algorithm.GATE), 0)
    after = place_fossils(state, blueprint, algorithm)
    assert broken_invariants(after.slots) == []
    assert torch.equal(after.slots.stage == int(Stage.FOSSILIZED), blueprint >= 0)
    assert torch.equal(after.slots.blueprint, blueprint)
    assert torch.equal(after.slots.algorithm, algorithm)
    assert trees_equal(after.slots[1], state.slots[1])
    assert trees_equal(after.replace(slots=state.slots), state)
