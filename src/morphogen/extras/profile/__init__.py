"""Profile of a run: the time of every phase of a round, on the clocks of CPU and device.

For readers who ask "where does the time go?".

    phase_timer    `Timer`, which a run marks at the begin of each phase

The phases stand in `device.profiler.PHASES`: the order of an epoch, the update of the policy, the
record of an epoch, exchange and checkpoints.  Every moment of a round belongs to one phase.
The time in which graphs are made belongs to none.

A run records the profile of each round as the event `PhaseProfile`, from which the throughput
picture and the table `phases` are made.  `--no-phase-profile` measures nothing.  A profile changes
no number of a run, and on a CUDA device it never waits.

Plugs in at: the group of entry points `morphogen.timers`, whose value is a class like `NullTimer`
of `device.profiler`.  Loads torch.
"""
