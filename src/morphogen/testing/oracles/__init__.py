"""Rules written by hand, one cell at a time, in plain Python: slow, obvious, without the tables of the package.

    from morphogen.rules.legality import legal
    from morphogen.testing import oracles
    from morphogen.testing.builders import scenes
    slots = scenes.make_slots([[{"stage": 3, "age": 7}, {}]])
    allow = scenes.make_limits(slots)
    env = oracles.slot_cells(slots)[0]
    assert legal(slots, allow)[0].tolist() == oracles.legality(env, allow)
    assert oracles.decode([3, 0, 0, 0, 0, 0, 2, 0], env, allow)["alpha_steps"] == 5  # PRUNE in five ticks
    assert oracles.shapley(lambda m: float(m == 3), [0, 1]) == {0: 0.5, 1: 0.5}
    assert oracles.ramp(0.0, 1.0, 4) == [0.25, 0.5, 0.75, 1.0]

Codes are plain integers, as in the state; the comments in each module name them.
"""

from morphogen.testing.oracles.actions import SlotCell, count_actions, decode, legal, legality, slot_cells
from morphogen.testing.oracles.credit import core_rewards, gae, interaction, shaping, shapley
from morphogen.testing.oracles.lifecycle import can_transition, curve, ramp, tick

__all__ = [
    "SlotCell",
    "can_transition",
    "core_rewards",
    "count_actions",
    "curve",
    "decode",
    "gae",
    "interaction",
    "legal",
    "legality",
    "ramp",
    "shaping",
    "shapley",
    "slot_cells",
    "tick",
]
