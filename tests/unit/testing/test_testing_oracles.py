"""The package against the oracles."""

import inspect
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.groups import LifecycleSpec
from morphogen.steps.tick_step import tick
from morphogen.testing import oracles
from morphogen.testing.builders import scenes
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import Stage


def test_an_oracle_knows_nothing_of_the_package():
    modules = re.findall(r"^(?:import|from) (\w+)", inspect.getsource(oracles), re.MULTILINE)
    assert modules == ["itertools", "math", "collections", "typing"]


@given(slot_states(), st.integers(1, 6))
def test_a_tick_is_what_the_rules_say_slot_by_slot(slots, embargo):
    after, _ = tick(scenes.make_state(slots), lifecycle=LifecycleSpec(embargo_epochs=embargo))
    names = (
        "stage",
        "previous_stage",
        "epochs_in_stage",
        "previous_epochs_in_stage",
        "alpha",
        "alpha_mode",
    )
    names += (
        "alpha_done",
        "alpha_start",
        "alpha_target",
        "alpha_steps",
        "alpha_curve",
        "alpha_steepness",
    )
    for e, s in itertools.product(range(len(slots)), range(slots.stage.shape[1])):
        was = {name: getattr(slots, name)[e, s].item() for name in names}
        now = {name: getattr(after.slots, name)[e, s].item() for name in names}
        changes = oracles.tick(was, embargo=embargo)
        gone = changes.get("stage") in (Stage.DORMANT, Stage.PRUNED)
        wanted = changes if gone else was | changes
        assert {name: now[name] for name in wanted} == pytest.approx(wanted, abs=1e-6)
