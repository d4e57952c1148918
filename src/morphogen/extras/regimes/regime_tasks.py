"""Digits in a world that changes, and the defaults of its runs."""

from dataclasses import replace

from morphogen.config.host import CnnSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TASKS
from morphogen.config.task_defaults import read_defaults
from morphogen.vocab.objective import ANYTIME

DIGITS = TASKS["digits"]
DIGITS_HOST = DIGITS.host
assert isinstance(DIGITS_HOST, CnnSpec)
DIGITS_REGIMES = replace(
    DIGITS,
    name="digits_regimes",
    question="does it pay to look, where what a host needs is not told and changes, and size costs "
    "as it lives?",
    host=replace(DIGITS_HOST, base=8, blocks=3, kernel=1, pools=2),
    instance=InstanceSpec(param_price=(0.15, 0.185)),
    batch=16,
    episode_length=90,
    success=70.0,
    objective=ANYTIME,
    # Regimes of three classes in plain images, or of two in drowned ones: guessing alone has
    # another loss in each. At these prices the best seed that stays for ever gains about as much as
    # it costs, most of it in the plain regimes: only growth there pays off. All actions are
    # allowed; the regime is not observed, only the price is. A slot is free again soon after a
    # pruning. A loss that rises with a new regime is no panic: the governor reacts only to losses
    # that are not finite. The rules forget a measurement at once, because the imitated policy
    # should need no memory. Imitation ends once its actions are likely enough, because a policy
    # that copies for sure explores nothing else. Few rows germinate, and the largest seed costs a
    # hundred times the least: ratios of complete actions weigh these rows like any other, and no
    # bonus pays for a rare blueprint. Decisions are greedy in evaluation, because what is drawn to
    # explore, such as a seed that is kept for good, costs to the end.
    defaults=read_defaults(__file__, "digits_regimes"),
)
