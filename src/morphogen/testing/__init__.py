"""Public test kit: check your own step, mask or reward rule against the laws of the package.

    strategies  Hypothesis strategies: small reachable states, limits, actions, reward inputs
    laws        promises of every step, rule and reward rule; a violation is one sentence and its
                smallest example (the tables `STEP_LAWS` and `REWARD_LAWS` in `laws.check` name
                them)
    audit       detection of reads of the device by the host
    oracles     rules written by hand, one cell at a time, without the tables of the package
    builders    scenes (small states by hand), reward inputs, permuted slots, equality of trees

    from morphogen.testing import laws, strategies
    laws.check_rule(my_mask, strategies.slot_states())

Parts are checked by `laws.check_blueprint`, `check_host`, `check_dataset`, `check_network` and
`check_learner`, the parts of an environment by `check_environment`.
`strategies` and `laws` need Hypothesis: `pip install "morphogen[test]"`.  The rest needs no extra.
Loads torch.
"""

import importlib
from types import ModuleType

# pyright: reportUnsupportedDunderAll=false
__all__ = ["audit", "builders", "laws", "oracles", "strategies"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module 'morphogen.testing' has no attribute {name!r}")
    return importlib.import_module(f"morphogen.testing.{name}")
