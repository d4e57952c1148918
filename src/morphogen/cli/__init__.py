"""Command `morphogen`: one module per command, with its flags, its help text and its action.

For users of the terminal and for readers who ask "which setting does a flag change?".  Entry
points:

    main           `run_process`, `main`: parser, exit codes, errors as single lines
    command_table  commands by name, with their lines in the help; packages offer more at the entry
                   points `morphogen.commands`
    arguments      values of flags; flags that several commands share
    setting_flags  flags taken from the config fields, and the settings that they make
    process        signals, threads, exit codes, notes and tables on the terminal
    launcher       `Launcher`: runs a command in this process, or in several that an extra starts
    streams        stdout and stderr that never stop a command
    train, resume
                   the commands: `PARSER` (help text), `add_arguments`, `run`; packages offer other
                   ways to train at the entry points `morphogen.train_modes`

Every error of the user is one line on stderr, with the field, the allowed values and the value.
Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint or run directory, 5 diverged, 6
incomplete telemetry, 7 lost output, 8 a process of several failed, 128 and the number of a signal.
The module of a command is imported when the command is used, and modules that load torch when its
work begins, so that help and errors are fast.
"""
