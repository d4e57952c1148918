"""The tables of actions, typed over: heads, values, names and which op uses which head."""

import pytest
from support.made_up_rollouts import masks

from morphogen.policy.distribution import noise_lanes
from morphogen.vocab.action import HEADS, PLACEHOLDER, RELEVANT, SIZES, VALUES, Head, Op
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, CNN_KINDS, Blueprint

NAMES = {
    "op": "WAIT GERMINATE SET_ALPHA_TARGET PRUNE FOSSILIZE ADVANCE",
    "blueprint": (
        "noop conv_light attention norm depthwise bottleneck conv_small conv_heavy lora "
        "lora_large mlp_small mlp "
        "flex_attention"
    ),
    "style": "LINEAR_ADD LINEAR_MULTIPLY SIGMOID_ADD GATED_GATE",
    "tempo": "FAST STANDARD SLOW",
    "alpha_target": "HALF SEVENTY FULL",
    "alpha_speed": "INSTANT FAST MEDIUM SLOW",
    "alpha_curve": "LINEAR COSINE SIGMOID_GENTLE SIGMOID SIGMOID_SHARP",
}
USES = {
    "WAIT": "op",
    "GERMINATE": "op slot blueprint style tempo alpha_target",
    "SET_ALPHA_TARGET": "op slot style alpha_target alpha_speed alpha_curve",
    "PRUNE": "op slot alpha_speed alpha_curve",
    "FOSSILIZE": "op slot",
    "ADVANCE": "op slot",
}
CNN = "conv_light attention norm depthwise bottleneck conv_small conv_heavy"


def name_of(value) -> str:
    return value.label if isinstance(value, Blueprint) else value.name


def test_the_heads_stand_in_sampling_order():
    assert HEADS == (
        "op",
        "slot",
        "blueprint",
        "style",
        "tempo",
        "alpha_target",
        "alpha_speed",
        "alpha_curve",
    )
    assert [Head[name.upper()] for name in HEADS] == list(range(8))


@pytest.mark.parametrize("head", NAMES)
def test_each_value_of_a_head_has_its_index_and_its_name(head):
    kind, wanted = VALUES[Head[head.upper()]], NAMES[head].split()
    assert [name_of(value) for value in kind] == wanted
    for index, name in enumerate(wanted):
        assert int(kind[name.upper()]) == index
        assert name_of(kind(index)) == name


def test_there_are_38_values_besides_the_slots_and_every_table_has_their_sizes():
    sizes = {head: len(names.split()) for head, names in NAMES.items()}
    assert {head.label: size for head, size in SIZES.items()} == sizes
    assert sum(sizes.values()) == 38
    assert noise_lanes(5) == 38 + 5
    free = masks(2, slots=5)
    assert {name: free.get(name).shape[-1] for name in sizes} == sizes
    assert free.slot.shape == (2, 6, 5)


def test_each_op_uses_its_heads_and_no_others():
    assert len(RELEVANT) == len(Op)
    for op, heads in USES.items():
        assert [
            head for head, used in zip(HEADS, RELEVANT[Op[op]], strict=True) if used
        ] == heads.split()
    assert PLACEHOLDER[1:] == (0, 0, 2, 1, 2, 0, 0)


def test_the_blueprints_of_a_cnn_have_their_codes_and_never_the_placeholder():
    assert " ".join(blueprint.label for blueprint in CNN_BLUEPRINTS) == CNN
    assert [CNN_KINDS[blueprint] for blueprint in CNN_BLUEPRINTS] == CNN.split()
    assert sum(name == "" for name in CNN_KINDS) == 6
    assert CNN_KINDS[Blueprint.NOOP] == ""
