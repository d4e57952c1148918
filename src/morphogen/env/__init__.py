"""The environment: many hosts that grow, moved epoch by epoch by actions.

For readers who ask "in which order does an epoch run?".  Entry points:

    setup           `build_setup`: from a spec to data, networks, rule and device; `describe_run`:
                    its size
    environment     `Environment`: reset, step, plan, restart; `advance` is the order of an epoch;
                    `make` builds it
    actions         actions of all envs: by names, random ones, waiting, one leaf per head
    phases          the units of an epoch: observe, choose, act (decode .. tick), train, score; each
                    can be compiled
    task_kind       `TaskKind`: how the envs of a task train and validate; `trained_networks` is the
                    kind of the core
    episodes        one epoch under a policy; episodes without training, for evaluation; rows of a
                    round for the update
    policies        name -> policy, parameters and action control; `action_control`: narrowed
                    choices
    units           functions of an epoch, as they are or compiled; `capture`: loops as graphs
    part_check      smoke check of hosts, blueprints and reward rules from outside, before a run
    policy_check    a policy on made-up observations: its numbers have their form and are finite

One step: decode, apply, tick, [plan], train, validate, attribute, govern, reward,
[next world], observe, mask.
Only this package and `train` decide when the host waits for the device; `device.transfers.FENCES`
lists all waits.
Loads torch.
"""
