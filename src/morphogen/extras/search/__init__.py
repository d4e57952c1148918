"""Search: rivals of a policy: the best fixed schedules and rules, and the best of each instance.

For readers who ask "what could a policy reach, and what without looking?".  Entry points:

    tune                 the command `tune`: the best schedule, or the best thresholds
    candidates           candidates for fixed schedules, and their neighbours
    instance_sets        instances that schedules play, and the values of many schedules
    successive_halving   the search loop, and the search for the best schedule
    threshold_search     search for the thresholds of the heuristic
    replays              arms `schedule`, `static`, `static-cost`, `static-params`: what a policy
                         grew
    oracle               arm `oracle`: the best of the played schedules for each instance
    clairvoyant          arm `clairvoyant`: the best schedule along the regimes of each instance

Plugs in at two groups of entry points: `morphogen.arms` for `evaluate`, and `morphogen.commands`
for the command line.  Searches play training instances, or siblings of held-out worlds, never the
worlds in which an arm is judged.
`tune` loads no torch until it searches; all other modules load it.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "search the best fixed schedule or the best rules, a baseline for what a policy learns",
    "morphogen.extras.search.tune",
)
