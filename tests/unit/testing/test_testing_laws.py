"""The public laws: a fault of each kind is found with its sentence, and parts without a fault
pass.
"""

import re

import pytest
from hypothesis import strategies as st
from support import broken_rules
from support.broken_rules import GAMMA, paying

import morphogen as mg
from morphogen.errors import ConfigError
from morphogen.rules.rewards.table import rule_from_function
from morphogen.steps.govern_step import first_snapshot
from morphogen.testing.builders import scenes
from morphogen.testing.laws import (
    MASK_LAWS,
    REWARD_LAWS,
    STEP_LAWS,
    BrokenLaw,
    check,
    check_mask,
    check_reward,
    check_rule,
    check_step,
    search,
)
from morphogen.testing.strategies import slot_states
from morphogen.vocab.limits import Limits

FEW = {"examples": 4}
slots = slot_states(max_envs=3, max_slots=2)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Searches for a smaller example, and the compiler, take little time."""
    monkeypatch.setattr(search, "MAX_SHRINKS", 5)
    monkeypatch.setattr(check, "BACKEND", "eager")


def broken(check, *args, **knobs) -> BrokenLaw:
    """The law that the check finds broken."""
    with pytest.raises(BrokenLaw) as caught:
        check(*args, **{**FEW, **knobs})
    assert "\n" not in caught.value.sentence
    assert str(caught.value).startswith(caught.value.sentence)
    return caught.value


# reward rules


@pytest.mark.slow
def test_rules_without_a_fault_pass():
    check_reward(rule_from_function(broken_rules.gain), **FEW)
    check_reward(broken_rules.Shaped(), gamma=GAMMA, **FEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "knobs", "law", "sentence"),
    [
        (
            paying(broken_rules.above_average),
            {},
            "neighbours",
            r"average sees its neighbours: env \d alone differs in components.paid",
        ),
        (
            paying(broken_rules.first_slot),
            {"examples": 8},
            "slots",
            r"first_slot pays for a slot index: step \d of env \d has 0.* and .* permuted slots",
        ),
        (
            broken_rules.Undiscounted(),
            {"gamma": GAMMA},
            "telescopes",
            r"does not telescope: the discounted shaping of the",
        ),
        (
            paying(broken_rules.masked_by_product),
            {},
            "finite",
            r"pays a non-finite number: .* where an invalid value is nan",
        ),
        (
            broken_rules.InPlace(),
            {},
            "writes",
            r"InPlace writes to its input: ledger.phi has changed",
        ),
        (
            paying(broken_rules.for_trying),
            {},
            "unexecuted",
            r"pays for an op that did not take effect: step \d of env \d has .* for WAIT",
        ),
        (
            broken_rules.Unsummed(),
            {},
            "sums",
            r"Unsummed has components that do not sum to the reward: step 1 of env \d has",
        ),
        (
            broken_rules.Growing(),
            {},
            "shapes",
            r"Growing does not keep the leaves of its ledger: seen",
        ),
        (
            broken_rules.Elsewhere(),
            {},
            "shapes",
            r"Elsewhere does not keep its device: init makes phi elsewhere",
        ),
        (
            paying(broken_rules.noisy),
            {},
            "repeats",
            r"noisy is not a function of its input: it draws from a global random",
        ),
        (
            paying(broken_rules.Numbered()),
            {},
            "graph",
            r"Numbered is not one graph: call \d with other values",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) and part in REWARD_LAWS else "",
)
def test_a_faulty_rule_is_found_by_the_law_that_it_breaks(rule, knobs, law, sentence):
    found = broken(check_reward, rule, **knobs)
    assert found.law == law, found
    with pytest.raises(AssertionError, match=sentence):
        raise found


NO_NUMBER = r"^<lambda>: component paid: expected a tensor \[E\], a real number per env, got "


@pytest.mark.parametrize(
    ("function", "law", "sentence"),
    [
        (
            broken_rules.by_host,
            "host",
            r"^by_host asks the host: .*broken_rules.py:\d+: return gain\(inputs\) if bool",
        ),
        (lambda inputs: {"paid": 1.0}, "shapes", NO_NUMBER + "1.0"),
        (
            lambda inputs: {"paid": inputs.committed_acc.mean()},
            "shapes",
            NO_NUMBER + r"torch.float32 \[\]",
        ),
        (
            lambda inputs: inputs.committed_acc,
            "shapes",
            r"^<lambda>: expected a dict of named parts of the reward, got t",
        ),
        (
            lambda inputs: {"governor": inputs.committed_acc},
            "shapes",
            r"^<lambda>: expected components other than gov",
        ),
        (
            lambda inputs: {"paid": inputs.accuracy},
            "accepts",
            r"^<lambda> does not accept a valid input: AttributeError",
        ),
    ],
)
def test_a_faulty_function_is_named_by_its_name_and_the_law_that_it_breaks(function, law, sentence):
    found = broken(check_reward, function)
    assert found.law == law, found
    assert re.search(sentence, found.sentence), found.sentence


@pytest.mark.slow
def test_the_example_is_as_small_as_can_be(monkeypatch):
    monkeypatch.setattr(search, "MAX_SHRINKS", 400)
    found = broken(check_rule, broken_rules.older_than_the_others, slots)
    assert found.law == "neighbours"
    assert found.example.stage.shape == (2, 1), "two envs, as one has no neighbours"
    assert (found.example.stage == 1).sum() == 1, "one seed"
    assert "age = " in str(found)


def test_a_violation_is_reported_without_a_search_for_a_smaller_example(monkeypatch):
    monkeypatch.setattr(search, "MAX_SHRINKS", 0)
    found = broken(check_rule, broken_rules.older_than_the_others, slots)
    assert found.law == "neighbours"


def test_a_component_that_the_rule_does_not_have_cannot_telescope():
    with pytest.raises(
        ConfigError, match=r"gamma: expected a rule with a component shaping, got paid, governor"
    ):
        check_reward(paying(broken_rules.gain), gamma=GAMMA, **FEW)


# steps and rules


@pytest.mark.slow
def test_a_step_without_a_fault_passes():
    check_rule(broken_rules.older, slots, slots=True, **FEW)
    check_step(broken_rules.older, slots, **FEW)


@pytest.mark.parametrize(
    ("step", "law", "sentence"),
    [
        (
            broken_rules.picky,
            "accepts",
            r"picky does not accept a valid input: IndexError: one slot is enough",
        ),
        (
            broken_rules.older_in_place,
            "writes",
            r"older_in_place writes to its input: age has changed",
        ),
        (
            broken_rules.older_where_it_counts,
            "host",
            r"asks the host: aten.index at .*broken_rules.py:\d+: age\[slots.stage > 1\]",
        ),
        (
            broken_rules.older_on_the_cpu,
            "host",
            r"asks the host: on the meta device, .* its output 0 is on cpu",
        ),
        (
            broken_rules.older_by_chance,
            "repeats",
            r"is not a function of its input: it draws from a global random generator",
        ),
        (
            broken_rules.Counting(),
            "repeats",
            r"Counting is not a function of its input: age came out differently",
        ),
        (
            broken_rules.older_than_the_others,
            "neighbours",
            r"sees its neighbours: env \d alone differs in age",
        ),
        (
            broken_rules.older_in_single,
            "kinds",
            r"does not keep dtypes: alpha went in as torch.float64 and came out",
        ),
        (
            broken_rules.older_by_device,
            "kinds",
            r"makes another kind of result on the meta device than on the CPU",
        ),
        (
            broken_rules.older_when_compiled,
            "graph",
            r"older_when_compiled gives another alpha when it is compiled",
        ),
        (
            broken_rules.older_by_place,
            "slots",
            r"depends on the order of slots: age changed with it",
        ),
        (
            broken_rules.older_in_two_graphs,
            "graph",
            r"is not one graph: torch.compile\(fullgraph=True\) stopped with",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) and part in STEP_LAWS else "",
)
def test_a_faulty_step_is_found_by_the_law_that_it_breaks(step, law, sentence):
    found = broken(check_step, step, slots, slots=True)
    assert found.law == law, found
    with pytest.raises(AssertionError, match=sentence):
        raise found


@pytest.mark.slow
def test_a_mask_without_a_fault_passes():
    check_mask(broken_rules.patient, limits=Limits((True,) * 3, min_prune_age=1), slots=True, **FEW)


@pytest.mark.parametrize(
    ("mask", "law", "sentence"),
    [
        (
            broken_rules.dead,
            "choice",
            r"^dead leaves env \d no op: every env needs one, such as WAIT",
        ),
        (
            broken_rules.illegal,
            "legal",
            r"^illegal allows what is illegal: FOSSILIZE in slot 0 of env 0, .* DORMANT",
        ),
        (
            broken_rules.by_op,
            "shapes",
            r"^by_op returns torch.bool \[1, 6\], not torch.bool \[1, 6, 2\]",
        ),
        (broken_rules.hasty, "neighbours", r"^hasty sees its neighbours"),
    ],
)
def test_a_faulty_mask_is_found_by_the_law_that_it_breaks(mask, law, sentence):
    found = broken(check_mask, mask, examples=40)
    assert found.law == law, found
    with pytest.raises(AssertionError, match=sentence):
        raise found


def test_a_mask_is_held_to_the_limits_of_an_environment():
    env = mg.make("digits", envs=1)
    limited = broken(check_mask, broken_rules.patient, limits=env.limits, examples=40)
    assert limited.law == "legal"  # digits limits the number of seeds
    check_mask(
        lambda slots: mg.rules.legal(slots, env.limits), limits=env.limits, skip=("graph",), **FEW
    )


def test_a_step_that_raises_under_a_law_breaks_it():
    found = broken(check_step, broken_rules.older_in_company, slot_states(min_envs=2, max_slots=2))
    assert found.law == "neighbours"
    assert found.sentence == "older_in_company raises ValueError: nobody is here"


@pytest.mark.slow
def test_a_rule_that_returns_a_whole_state_is_a_step():
    states = slots.map(scenes.make_state)
    assert broken(check_rule, first_snapshot, states).law == "stateless"
    check_step(first_snapshot, states, skip=("graph",), **FEW)


def test_several_arguments_are_a_tuple_and_plain_values_stay_what_they_are():
    pairs = st.tuples(slots, st.just(3))
    check_rule(
        lambda part, by: part.replace(age=part.age + by), pairs, name="aged", slots=True, **FEW
    )


def test_a_law_can_be_left_out_and_one_that_does_not_exist_is_refused():
    check_step(broken_rules.older_by_chance, slots, skip=("repeats", "neighbours", "graph"), **FEW)
    with pytest.raises(
        ConfigError, match=r"skip: expected names of accepts, host.*, got \['repeat'\]"
    ):
        check_step(broken_rules.older, slots, skip=("repeat",), **FEW)


def test_a_graph_needs_two_examples_of_the_same_shapes():
    with pytest.raises(
        ConfigError, match=r"states: expected two distinct examples of equal shapes"
    ):
        check_step(broken_rules.older, st.just(scenes.make_slot(stage=3, age=2)), **FEW)


def test_every_law_says_what_holds():
    for name, law in {**STEP_LAWS, **MASK_LAWS, **REWARD_LAWS}.items():
        assert (law.__doc__ or "").endswith((".", ".\n    ")), name
