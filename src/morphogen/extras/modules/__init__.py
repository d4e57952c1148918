"""Modules: hosts from networks of plain torch.

For readers who ask "how does a network of my own grow?".  Entry points:

    module_host      `host_from_module`: a host whose envs each train a copy of a module, all at
                     once
    module_stages    `Slot`, a place for a seed in a module; the trace of the module, cut at its
                     slots
    initial_values   the rule by which each parameter was drawn, so that every env draws its own

Plugs in at `Host`, of which a `ModuleHost` is one with the methods of `HostNetworks`: it stands in
the field `host` of a `TaskSpec`.  `mg.host_from_module` and `mg.Slot` are public.  The extra
`export` grows and writes such networks, and `mnist` has a task on one; both need this one.

Example: `mg.TaskSpec(name="mine", dataset="digits", host=mg.host_from_module(Net))`.
Errors: a module that cannot be a host is a ConfigError, in one line.
The modules load torch; importing the package does not.
"""
