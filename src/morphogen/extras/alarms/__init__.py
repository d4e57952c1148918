"""Alarms: limits on the numbers of a round, and signs of seeds that look better than they are.

For readers who want to know when a run goes wrong.  An alarm is an event `AnomalyDetected` about a
round, with a severity; its kind also stands in `BatchSummary.anomalies` unless it is mere
information.  A trend or a drop of the accuracy is an event of its own.

    alarm_table     the alarms: metric, limit, consecutive rounds; numbers of an update -> findings
    round_alarms    the monitor of a run: numbers of its rounds, memory, trends and drops
    return_gap      returns of a round against the targets of its learner
    seed_signs      signs of seeds, derived from the record of a round
    limits          the settings `telemetry.limits`

    morphogen train --set telemetry.limits.kl_spike=0.2

A number that was not measured judges nothing, and comparisons are strict.

Plugs in at: the groups of entry points `morphogen.monitors`, `morphogen.events` and
`morphogen.settings`.  The core keeps the kinds of these events, which the console, tables and
loggers show.  Loads no torch.
"""
