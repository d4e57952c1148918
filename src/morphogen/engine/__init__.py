"""Composition of the steps into epochs, rounds and runs: the only package that decides when the host waits.

For readers who ask "in which order does an epoch run?".  Entry points:

    setup           `build_setup`: from a resolved spec to data, networks, rule and device; `describe_run`: its size
    scheduler       `Scheduler`: run -> run_round -> run_epoch; `Parts` replaces defaults, `Hooks` are called by it
    epoch           `run_epoch`: one epoch, the order of its phases
    phases          the units of an epoch: act (observe .. tick), train and validate, score; each can be compiled
    vector_env      `VectorEnv`: all envs of a process, moved epoch by epoch
    compile         `torch.compile` in one place, graphs per padded plan
    reporter        the one tree transferred for telemetry, and the events that it gives
    episodes        rows of a round for the update; episodes without training of the policy, for evaluation
    policies        name -> policy, parameters and action control; `action_control`: declared schedules
    reward_rule     name -> reward rule, also of installed packages (`extensions`)

One epoch: observe, mask, act, decode, apply, tick, [plan], train, validate, attribute, govern, reward, [record].
Loads torch, except `extensions`.
"""
