"""Comparisons of runs: the command `morphogen compare`, and `--seeds` of `morphogen train`.

For readers who ask "is it better, or was it luck?".  Entry points:

    command       the command `compare`: plays the runs of all sides, prints verdicts
    comparison    `mg.compare`, and the statistics of pairs of sides
    sides         sides of a comparison: run directories, or folders of them
    series        `train --seeds`: a run per training seed, and their table

Two sides are paired: by training seeds, and on the same held-out instances.  A verdict needs
intervals that leave out 0, over the instances and over the seeds.  A series that was stopped
continues with the same command, and a run that fails does not stop the others.

Errors: sides that cannot be compared, such as sides of other tasks, are a ConfigError, exit code 2.

Plugs in at two groups of entry points: `morphogen.commands`, whose values are a `Command` of
`cli.command_table`, and `morphogen.train_modes`, whose values are modules as `cli.train` says.
`comparison` loads torch, the other modules load it when their work begins.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "compare runs on the same seeds and instances",
    "morphogen.extras.compare.command",
)
