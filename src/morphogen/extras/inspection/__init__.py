"""Inspection: a run directory or a checkpoint as facts and tables.

For readers who ask "how did a run go?": the command `morphogen inspect PATH`, and `mg.tables` for
programs.

    inspect_command    the command
    inspect_run        `mg.tables`; facts and excerpts of a run, or of a checkpoint
    run_reader         `RunLog`: config, manifest, and the events of a run folded into tables
    views              plain tables: rounds, episodes, ops, masks, blueprints, the Pareto front

    for row in mg.tables(run)["episodes"]:
        print(row["committed_accuracy"], row["params"])

A run may still be running: its tables hold the rounds that are over.  Nothing is written.

Errors: a folder that is no run directory is a ConfigError, exit code 2; a damaged log is a
DataError, exit code 3.

Plugs in at: the group of entry points `morphogen.commands`, whose value is a `Command` of
`cli.command_table`.  Loads no torch.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "print what a run directory or a checkpoint holds",
    "morphogen.extras.inspection.inspect_command",
)
