"""The white-box tasks, and the defaults of their runs."""

from dataclasses import replace

from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TASKS
from morphogen.config.task_defaults import read_defaults
from morphogen.vocab.objective import ANYTIME

WHITEBOX = replace(
    TASKS["tiny"],
    name="whitebox",
    question="does the policy find out when, where and which growth pays, where the best policy is "
    "known?",
    batch=1,
    val_samples=1,
    kind="whitebox",
    # Slots move up by themselves, so that what is left to learn is whether, when and which. A fresh
    # policy germinates at any time, so that some of its seeds pay; an epoch costs about the same
    # for many hosts as for few, but for its events.
    defaults=read_defaults(__file__, "whitebox"),
)
WHITEBOX_REGIMES = replace(
    WHITEBOX,
    name="whitebox_regimes",
    question="does the policy see that its world has changed, where the best policy is known?",
    instance=InstanceSpec(param_price=(0.05, 1.0)),
    episode_length=32,
    success=80.0,
    objective=ANYTIME,
    # The view of a regime decides which blueprint helps, and is never observed. All ops are
    # enabled, and a new regime is no panic.
    defaults=read_defaults(__file__, "whitebox_regimes"),
)
