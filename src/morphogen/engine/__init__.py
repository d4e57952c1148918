"""Composition of the steps into epochs, rounds and runs: the only package that decides when the host waits.

For readers who ask "in which order does an epoch run?".  Entry points:

    setup           `build_setup`: from a spec to data, networks, rule and device; `describe_run`: its size
    environment     `Environment`: reset, step, plan, restart; `step` holds the order of an epoch; `make` builds it
    actions         actions of all envs: by names, random ones, waiting, one leaf per head
    phases          the units of an epoch: observe, choose, act (decode .. tick), train, score; each can be compiled
    scheduler       `Scheduler`: run -> run_round -> run_epoch; `Parts` replaces defaults, `Hooks` are called by it
    compile         `torch.compile` in one place
    reporter        the one tree transferred for telemetry, and the events that it gives
    episodes        one epoch under a policy; episodes without training, for evaluation; rows of a round for the update
    policies        name -> policy, parameters and action control; `action_control`: declared schedules
    part_check      smoke check of hosts, blueprints and reward rules from outside, before a run
    row_check       a policy on made-up observations: finite numbers, and the same in other stacks on this machine

One step: decode, apply, tick, [plan], train, validate, attribute, govern, reward, observe, mask.
Loads torch.
"""
