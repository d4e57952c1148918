"""The command `morphogen bench`: rates and memory of a configuration, or of every point of a grid.

It runs a few rounds of a configuration, of which the first one is a warm-up, and reads the events
`Throughput`, `PhaseProfile` and `RoundCompleted` of the others.  No run directory is written.

    speed_grid      the command: flags, points of a grid, tables.  Each point of a grid is measured
                    by the same command in a process of its own, because threads, graphs and the
                    peak of memory belong to a process
    probe           rounds of a configuration -> numbers; the machine on which they were measured

Numbers are medians over the rounds after the first, with half the interquartile range of the rate.

Errors: an invalid grid is a ConfigError before anything runs.  The code of a point that fails is
the code of the command, after the table of the measured points.

Plugs in at: the group of entry points `morphogen.commands`.  Uses `train.loop` and `log.writer`.
`speed_grid` loads no torch; `probe` does.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "measure how fast a configuration runs, and where its time goes",
    "morphogen.extras.bench.speed_grid",
)
