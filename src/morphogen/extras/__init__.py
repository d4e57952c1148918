"""Extras: subjects that the core does not know, a folder each.

For readers who look for a subject outside of the core, or who write a package with parts of their
own: an extra plugs in at the same hooks as every package.

    tasks and worlds     text, arrays, cifar, whitebox, regimes
    policies             schedules, search, archetypes
    rewards              legacy_rewards
    events of a run      alarms, scoreboard, statistics, details, loggers
    a log read back      inspection, pictures, watch
    commands             evaluate, compare, catalogue, completion, bench
    where a run runs     ranks, streaming, compiler, cpu_graphs, profile
    other libraries      torchrl, gymnasium, sb3

The package of each says what it holds, and where it plugs in.
Parts are registered by the entry points of this distribution, in `pyproject.toml`:

    [project.entry-points."morphogen.tasks"]
    pydoc = "morphogen.extras.text.tasks:TASKS.pydoc"

An extra imports the core and no other extra, except `sb3`, which builds on `gymnasium`, `search`,
which builds on `schedules`, and `pictures`, which builds on `inspection`.  The core imports no
extra.  An extra can be deleted with its folder, its entry points and its tests; `python
tests/tools/without_extra.py NAME` shows that the other tests pass without it.  Importing this
package loads nothing, no torch either.
"""
