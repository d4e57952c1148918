"""Evaluation of a run afterwards: the command `morphogen evaluate RUN`, and `mg.evaluate`.

For readers who ask "is the policy better than a fixed schedule?".

    command       the command: prints the tables
    evaluation    `evaluate`: the policy of a run and other arms in the same worlds; writes
                  `evaluation.json`

Arms are policies, files of policies, and arms that packages offer, as `evaluation.arms` says.  All
arms play the same instances with the same noise, so differences are paired.  The tables hold values
with 95 % intervals, differences of the policy of the run, and costs.

Errors: an unknown arm is a ConfigError, exit code 2; a damaged policy is a CheckpointError, exit
code 4.  A run directory that cannot be written to gets no file.

Plugs in at: the group of entry points `morphogen.commands`, whose values are a `Command` of
`cli.command_table`.  The command loads torch when the arms play.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "play a trained policy against others on the same held-out instances",
    "morphogen.extras.evaluate.command",
)
