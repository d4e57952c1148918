"""Digits in a world that changes, and the defaults of its runs."""

from morphogen.config import task
from morphogen.config.host import CnnSpec

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
TASKS = task.read_tasks(__file__, CnnSpec, task.TASKS)
