"""The command `morphogen`: parsing of its flags, and the functions behind its commands.

For users of the terminal and for readers who ask "which setting does a flag change?".  Entry points:

    main           `main`: one function per command, exit codes, notes and errors as single lines
    parser         the parser of all commands; `options`: one table from flag to config field
    bench          the command `bench`; `grid`: its points, `probe`: one measurement in a process of its own,
                   `explain`: forms of convolutions, `measures`: the file of results
    rewards        the command `rewards`: every rule and its returns on scripted policies
    compare        the command `compare`; `compare_sides`: its operands
    stop           SIGINT and SIGTERM; `process`: threads and fresh processes

Every error of the user is one line on stderr, with the field, its value and the allowed values.
Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint, 5 diverged, 6 incomplete telemetry, 130 and 143 signals.
Loads no torch until a command needs it, so that help and refusals are fast.
"""
