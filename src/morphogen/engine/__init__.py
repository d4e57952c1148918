"""Composition of the steps into epochs, rounds and runs: the only package that decides when the host waits.

For readers who ask "in which order does an epoch run?".  Entry points:

    setup           `build_setup`: from a spec to data, networks, rule and device; `describe_run`: its size
    environment     `Environment`: reset, step, plan, restart; `step` holds the order of an epoch; `make` builds it
    actions         actions of all envs: by names, random ones, waiting, one leaf per head
    phases          the units of an epoch: observe, choose, act (decode .. tick), score; each can be compiled
    task_kind       `TaskKind`: training and validation of a task; `trained_networks` is the default
    scheduler       `Scheduler`: run -> run_round -> run_epoch; `Parts` replaces defaults, `Hooks` are called by it
    compile         `torch.compile` in one place
    reporter        the one tree transferred for telemetry, and the events that it gives
    episodes        one epoch under a policy; episodes without training, for evaluation; rows of a round for the update
    policies        name -> policy, parameters and action control; `action_control`: declared schedules
    reward_rule     name -> reward rule, held to its contract
    row_check       `find_row_dependence`: what a policy computes differently in other stacks, on this machine
    part_laws       laws of hosts and blueprints, `learning_laws` of policy networks and learners, from outside

One step: decode, apply, tick, [plan], train, validate, attribute, govern, reward, observe, mask.
Loads torch.
"""
