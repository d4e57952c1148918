"""The scoreboard of blueprints: what became of the seeds of each, over the run so far.

For readers who ask which blueprints pay: how many seeds were germinated, kept and pruned, how old
they became, what they contributed, and what they cost.  After every round the log holds the
scoreboard as an event `BlueprintScores`.

    score_kinds     `BlueprintScores`, with a `BlueprintScore` for every blueprint
    seed_scores     the monitor of a run: counts seeds in the records of its rounds

    scores = mg.tables(run)["blueprints"]

It counts the events in the life of a seed, which `log.derive` derives from the records.  The counts
are part of a checkpoint, so a resumed run continues them.

Plugs in at: the group of entry points `morphogen.monitors`.  The core folds the event into the
table `blueprints`, which is empty without this extra.  Loads no torch.
"""
