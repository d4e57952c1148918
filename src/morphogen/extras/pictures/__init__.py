"""Pictures of runs: the command `morphogen report RUN ...` writes one page that needs no network.

For readers who ask "what happened in a run?" and want to see it.  Entry points:

    command  the command
    page     `mg.report`: the page `index.html`, every picture as PNG and its numbers as CSV
    plots    the six pictures: value on held-out instances, learning curves, one env's life, lives
             of the seeds, their contributions, throughput
    life     one env's life, also by itself: `morphogen report RUN --life life.svg`
    figure   the style of all pictures

Every picture is drawn from rows that `log.run_log` reads, so the numbers of a picture are a file
too.  The same logs give the same bytes, whatever the user has set for matplotlib.  A run that is
not over, or whose log ends early, has the pictures for which there are numbers.

Errors: a folder that is no run directory, or a missing matplotlib, is a ConfigError, exit code 2; a
damaged log is a DataError, exit code 3.

Plugs in at: the group of entry points `morphogen.commands`, whose values are a `Command` of
`cli.command_table`.  Loads no torch; `plots`, `life` and `figure` need matplotlib, which is
imported when a picture is drawn.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "draw runs: one HTML page with every picture, and their numbers as CSV",
    "morphogen.extras.pictures.command",
)
