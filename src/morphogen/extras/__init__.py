"""Extras: subjects that a run can do without, each in a folder that can be taken out.

An extra may import every package of the core.  The core imports no extra and does not contain its words: an extra
plugs in at a declared hook, by the same entry points that packages of others use:

    morphogen.tasks, .datasets, .hosts, .blueprints, .rewards, .networks, .learners, .policies
                          parts of a run (`config.parts`)
    morphogen.arms        arms of `evaluate`: `module:function (argument, setup) -> player`
    morphogen.launchers   what starts the processes of a command (`cli.launcher`)
    morphogen.commands    commands: a module with `PARSER`, `add_arguments` and `run`

The docstring of each folder says what the extra holds and where it plugs in.  A part is imported when its name is first
used; modules of commands are imported with the parser, so they load nothing heavy.

To take an extra out, delete its folder, the folder of its tests in `tests/extras` and its lines in `pyproject.toml`.
`tests/meta/test_extras.py` holds the words of each extra and its hooks.
Loads no torch; the folders say which of their modules do.
"""
