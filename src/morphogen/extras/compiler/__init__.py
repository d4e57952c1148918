"""Compiler: the functions of an epoch as graphs of `torch.compile`, under `engine.compile`.

For readers who ask "what is compiled, how often, and what if it fails?".  Entry points:

    compiled_units    `CompiledUnits`: graphs of units with their count, seconds and failures; the
                      one place that calls the compiler
    warm_up           every unit of a run compiled before its directory exists

Plugs in at the group of entry points `morphogen.compilers`: a class of units that derives from
`env.units.Units`.  `make` and a run open it unless `engine.compile` is off.

Loops over minibatches are no units: `env.capture` records and replays them.

Errors: a failure of the compiler is a CompileError before anything is written; under `auto` the run
goes on eager with a warning, in all of its processes.
The modules load torch; importing the package does not.
"""
