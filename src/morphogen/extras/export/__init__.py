"""Export: grown networks as modules of plain torch.

For readers who ask "how do I take a grown network home?".  Entry points:

    exported        `export`: the network of an env, with its seeds in their slots
    grown_slot      a slot with its seed, and the normalisation of inputs
    plain_images    the CNN host and the blueprints for images, as modules of plain torch

Plugs in at `morphogen.plain`: by the kind of features, a module with `build_seed` and `build_gate`;
and at `morphogen.plain_hosts`: by the class of a host, a function that builds its plain module.
A blueprint or host of your own has a method `plain` instead.  Public: `mg.export`.

Example: `torch.onnx.export(mg.export(env, state, 0), (inputs,), "grown.onnx", dynamo=True)`.
Errors: a blueprint or host without a plain form is a ConfigError, in one line.
The modules load torch; importing the package does not.
"""
