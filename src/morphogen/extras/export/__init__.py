"""Export: grown networks as modules and files, kept by runs, and `grow`, from a module to a better
one.

For readers who ask "how do I take a grown network home?".  Entry points:

    exported        `export`: the network of an env, with its seeds in their slots
    grow            `grow`: copies of a module grow side by side, the best one is returned
    kept_networks   the networks that a run keeps of its final evaluation, as `keep_spec` says
    kept_files      their files, with no torch
    network_files   files of networks: safetensors, a program of torch, ONNX
    grow_command, export_command  the commands
    grown_slot      a slot with its seed, and the normalisation of inputs
    plain_images    the CNN host and the blueprints for images, as modules of plain torch

Plugs in at `morphogen.plain`: by the kind of features, a module with `build_seed` and `build_gate`;
and at `morphogen.plain_hosts`: by the class of a host, a function that builds its plain module.
A blueprint or host of your own has a method `plain` instead.  Public: `mg.export`, `mg.grow`,
`mg.save_network`.

Example: `torch.onnx.export(mg.export(env, state, 0), (inputs,), "grown.onnx", dynamo=True)`.
Errors: a blueprint or host without a plain form is a ConfigError, in one line.
Kept networks plug in at `morphogen.settings`, `morphogen.keepers` and `morphogen.inspections`, the
commands at `morphogen.commands`.  Importing the package does not load torch.
"""

from morphogen.cli.command_table import Command

EXPORT = Command(
    "write a network that a run has kept: parameters, a program of torch, or ONNX",
    "morphogen.extras.export.export_command",
)
GROW = Command(
    "grow a network of a Python file on data of a file",
    "morphogen.extras.export.grow_command",
)
