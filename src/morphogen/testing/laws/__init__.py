"""Laws that every step, rule and reward rule of the package obeys, as checks for your own.

    from morphogen.rules.legality import legal
    from morphogen.testing import laws
    from morphogen.vocab.action import Op
    from morphogen.vocab.limits import Limits

    def patient(slots):  # a mask of your own: no PRUNE in the first ten epochs of a life
        allowed = legal(slots, Limits((True, True))).clone()
        allowed[:, Op.PRUNE] &= slots.age >= 10
        return allowed

    laws.check_mask(patient)

`check_blueprint`, `check_host`, `check_network`, `check_learner` and `check_dataset` check other
parts of your own, `check_environment` an environment. `check_reward(rule, gamma=0.995)` checks a
reward rule; `gamma` adds the law that its shaping telescopes. Checks return nothing and raise
`BrokenLaw`, an `AssertionError` with one sentence and the smallest example.  They work in a test
and in a plain script.
"""

from morphogen.testing import extra as extra
from morphogen.testing.laws.check import (
    MASK_LAWS,
    REWARD_LAWS,
    STEP_LAWS,
    check_mask,
    check_reward,
    check_rule,
    check_step,
)
from morphogen.testing.laws.part_checks import (
    check_blueprint,
    check_dataset,
    check_environment,
    check_host,
    check_learner,
    check_network,
)
from morphogen.testing.laws.search import BrokenLaw
from morphogen.testing.laws.step import Subject

__all__ = ["MASK_LAWS", "REWARD_LAWS", "STEP_LAWS", "BrokenLaw", "Subject"]
__all__ += ["check_blueprint", "check_dataset", "check_environment", "check_host"]
__all__ += ["check_learner", "check_mask", "check_network"]
__all__ += ["check_reward", "check_rule", "check_step"]
