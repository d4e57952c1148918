"""Export: grown networks as modules of plain torch, and `grow`, from a module to a better one.

For readers who ask "how do I take a grown network home?".  Entry points:

    exported        `export`: the network of an env, with its seeds in their slots
    grow            `grow`: copies of a module grow side by side, the best one is returned
    grow_command    the command `morphogen grow`
    network_files   files of networks: safetensors, a program of torch, ONNX
    grown_slot      a slot with its seed, and the normalisation of inputs
    plain_images    the CNN host and the blueprints for images, as modules of plain torch

Plugs in at `morphogen.plain`: by the kind of features, a module with `build_seed` and `build_gate`;
and at `morphogen.plain_hosts`: by the class of a host, a function that builds its plain module.
A blueprint or host of your own has a method `plain` instead.  Public: `mg.export`, `mg.grow`.

Example: `torch.onnx.export(mg.export(env, state, 0), (inputs,), "grown.onnx", dynamo=True)`.
Errors: a blueprint or host without a plain form is a ConfigError, in one line.
The command plugs in at `morphogen.commands`.  The modules load torch; importing the package does
not.
"""

from morphogen.cli.command_table import Command

GROW = Command(
    "grow a network of a Python file on data of a file",
    "morphogen.extras.export.grow_command",
)
