"""The command `morphogen watch RUN`: a live table of the rounds of a run, on the terminal.

It is a reader of the log: it reads `config.json` and `events.jsonl` of a run directory, and nothing
else.  The run does not notice it, so it may start before the first round, stop and start again, on
any machine that sees these files.

    command         the command
    rounds_table    rounds of a run -> a table of `rich`, and the loop that draws it again when the
                    log grows

A row of the table is a round: its accuracy, value and return, the seeds at its end, rollbacks,
speed and alarms.  Below it stands the state of the run.  A log that is cut by a resume is read
again from its begin.  On an output that is no terminal the table is printed once, at the end of the
run; `--once` prints the table as it is now.

Errors: a path that is no run directory, or a run without a log (`telemetry.level` off), is a
ConfigError, exit code 2; a damaged log is a DataError, exit code 3.

Plugs in at: the group of entry points `morphogen.commands`, whose values are a `Command` of
`cli.command_table`.  Uses `log.run_log` and `log.console`.  Loads no torch.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "follow a running run in the terminal",
    "morphogen.extras.watch.command",
)
