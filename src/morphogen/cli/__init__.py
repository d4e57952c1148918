"""Command `morphogen`: one module per command, with its flags, its help text and its action.

For users of the terminal and for readers who ask "which setting does a flag change?".  Entry
points:

    main           `run_process`, `main`: table of commands, parser, exit codes, errors as single
                   lines
    arguments      flags taken from the config fields; flags that several commands share
    process        signals, threads, child processes, exit codes, notes and tables on the terminal
    launcher       `Launcher`: runs a command in this process, or in several that an extra starts
    streams        stdout and stderr that never stop a command
    train, resume, bench, rewards, data, report, inspect, evaluate, watch, completion
                   the commands: `PARSER` (help text), `add_arguments`, `run`; packages offer more
                   modules of this form at the entry points `morphogen.commands`
    series         runs of several training seeds, and their table
    compare        the command, with training of its sides and their statistics
    probe          measurements of `bench` in a child process

Every error of the user is one line on stderr, with the field, the allowed values and the value.
Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint or run directory, 5 diverged, 6
incomplete telemetry, 7 lost output, 8 a process of several failed, 128 and the number of a signal.
Loads no torch until a command needs it, so that help and errors are fast: commands import heavy
modules by name.
"""
