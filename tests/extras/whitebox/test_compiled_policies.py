"""The best policies act alike when they are compiled."""

from functools import partial

import pytest
import torch
from support.compiled import compile_complete

import morphogen as mg
from morphogen.env.phases import choose_actions


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # from the compiler
def test_the_best_policy_acts_alike_when_compiled():
    env = mg.make("whitebox_regimes", envs=6, seed=0)
    policy, _, params, _ = mg.build_arm("optimal", env.setup)
    choose = partial(choose_actions, policy=policy)
    compiled = compile_complete(choose)
    hidden = policy.initial_hidden(6)
    state, seen = env.reset()
    for _ in range(3):
        given = (params, seen, hidden, env.action_keys, state.clock)
        expected = choose(*given)
        found = compiled(*given)
        assert torch.equal(found.action, expected.action)
        state, step = env.step(state, expected.action)
        seen = step.inputs
