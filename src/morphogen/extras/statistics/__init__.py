"""Statistics of a round: the choices of a policy, their alternatives and their rewards.

For readers who ask how a policy acts: counts of every op and of the values of every head, outcomes
and the reasons of failures, shares of legal choices, rewards by component, the scale of the
observations and the memory of the policy.

    statistic_kinds     `ActionCounts`, `MaskHitRates`, `RewardSummary`, `ObservationStats`,
                        `HiddenHealth`
    round_statistics    the monitor that sums up the steps of every round
    rollout_survey      measurements of observations and memory, on the device and over all
                        processes of a run; other monitors read them too

    for row in mg.tables(run)["ops"]:
        print(row["op"], row["sampled"], row["success_share"])

The observations after the first round are part of a checkpoint: their drift is counted from there.

Plugs in at: the groups of entry points `morphogen.surveys` and `morphogen.monitors`.  The core
folds the events into the tables `ops`, `verdicts`, `masks` and `rewards`, which are empty, or count
nothing, without this extra.  `rollout_survey` loads torch, the rest does not.
"""
