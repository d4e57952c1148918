"""Hypothesis strategies: small, shrinkable, reachable states, limits, actions, reward inputs.

    import torch
    from hypothesis import given, strategies as st
    from morphogen.rules.legality import legal
    from morphogen.testing import strategies
    from morphogen.vocab.action import Op


    @given(st.data(), strategies.slot_states(max_envs=2))
    def test_waiting_is_legal_on_every_enabled_slot(data, slots):
        limits = data.draw(strategies.limits(slots))
        assert torch.equal(
            legal(slots, limits)[:, Op.WAIT], torch.tensor([limits.enabled] * len(slots))
        )

Ages surround every default limit; alphas cover 0, every target, and every step of every ramp that
an action can start.
An example shrinks to one env with one empty slot.  For tensors of one shape, as under
`torch.compile`, fix the sizes:
`min_envs=2, max_envs=2` and so on.
"""

from morphogen.testing import extra as extra
from morphogen.testing.strategies.reward_strategies import reward_episodes, reward_inputs
from morphogen.testing.strategies.slots import actions, limits, slot_rows, slot_states
from morphogen.testing.strategies.states import env_states, signals

__all__ = ["actions", "env_states", "limits", "reward_episodes", "reward_inputs"]
__all__ += ["signals", "slot_rows", "slot_states"]
