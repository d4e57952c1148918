"""Catalogue: the commands `morphogen config` and `morphogen data`.

For readers who ask "what can be set, and what can be trained?".

    settings_command    `config [FIELD]`: meaning, allowed values, default and value of settings
    settings_page       `config --markdown`: the settings as a page, which is `SETTINGS.md`
    tasks_command       `data [TASK]`: tasks, the question that each asks, and whether its data can
                        be read; the files of the data sets, and where they are looked for

Both list the parts of the package, of its extras and of other packages.  Both print tables, or one
JSON document with `--json`.  Files are read and checked as a run does; nothing is downloaded.

Errors: an unknown name is a ConfigError, exit code 2, with the closest one; data of a named task
that is missing or damaged is a DataError, exit code 3.

Plugs in at: the group of entry points `morphogen.commands`, whose values are a `Command` of
`cli.command_table`.  `config` loads no torch; `data` loads it when it reads files.
"""

from morphogen.cli.command_table import Command

CONFIG = Command(
    "explain settings: meaning, allowed values, default, value",
    "morphogen.extras.catalogue.settings_command",
)
DATA = Command(
    "list the tasks, what each asks, and whether its data is there",
    "morphogen.extras.catalogue.tasks_command",
)
