"""Policies that do not learn: always legal, on the same path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.observed_scenes import HOST, LENGTH, decide, stand_still

from morphogen.config.spec import RunSpec
from morphogen.policy.baselines import build_random
from morphogen.policy.heuristic import build_heuristic
from morphogen.rules.decoding import decode
from morphogen.testing.builders.scenes import make_state
from morphogen.testing.strategies import limits, slot_states
from morphogen.vocab.limits import Limits

BASELINES = {"random": build_random, "heuristic": build_heuristic}


def policy_of(name: str, slots: int = 3):
    places = [slot.name for slot in HOST.all_slots[:slots]]
    return BASELINES[name](
        RunSpec(host={"name": HOST}, slots=places, episode_length=LENGTH), Limits((True,) * slots)
    )


@pytest.mark.slow
@given(
    slot_states().flatmap(lambda s: st.tuples(st.just(s), limits(s))),
    st.sampled_from(tuple(BASELINES)),
    st.booleans(),
)
def test_every_baseline_takes_legal_actions_only(world, name, grown):
    slots, bounds = world
    whole = stand_still(make_state(slots)) if grown else make_state(slots)
    policy = policy_of(name, slots.stage.shape[1])
    if name == "heuristic":
        bounds = Limits(bounds.enabled, bounds.max_seeds, bounds.min_prune_age, bounds.auto_forward)
    out = decide(policy, whole, bounds)
    spec = decode(out.action, whole.slots, bounds)
    assert spec.valid.all()
    assert (out.log_prob == 0).all()
    assert (out.value == 0).all()
