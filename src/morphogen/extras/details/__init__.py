"""Details of epochs: events that only a reader of `mg.events` looks at.

For readers who ask why a slot did not move, what a policy chose from, or where a reward came from.

    detail_kinds    `ActionsTaken`, `SlotsMeasured`, `AttributionMissing`, `RewardsPaid`
                    about all envs in an epoch; `GateEvaluated`, `AnomalySeen`,
                    `SnapshotTaken`, `HostStabilized`, `TopologyRecorded` about one env or slot
    detail_rules    the rules that derive them from the record of a round

    for event in mg.events(run, kinds={"GateEvaluated"}):
        print(event.round, event.epoch, event.slot, event.data.failed)

A record holds all that these events need, with or without this extra.  The log of a run, its
tables and its report use none of them.

Plugs in at: the group of entry points `morphogen.events`, whose values are tuples of
`log.derive.EventRule`.  Loads no torch.
"""
