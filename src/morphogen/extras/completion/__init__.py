"""Completion of words in a shell: the command `morphogen completion SHELL`.

    command    the command: a script for bash, zsh, fish or tcsh, made by the package `shtab`

The script completes commands, flags, paths, and the names of tasks, presets, policies, rules and
settings that are known when it is made.  It starts no process, so completion is fast.

    eval "$(morphogen completion bash)"                                     in ~/.bashrc
    morphogen completion zsh > ~/.zfunc/_morphogen                          a folder of $fpath
    morphogen completion fish > ~/.config/fish/completions/morphogen.fish

Errors: without `shtab` a ConfigError, exit code 2, says how to install it.

Plugs in at: the group of entry points `morphogen.commands`, whose values are a `Command` of
`cli.command_table`.  Loads no torch.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "print a script that completes commands and names in a shell",
    "morphogen.extras.completion.command",
)
