"""Reward rules of the original system, kept for comparison, with their known faults.

For readers who repeat runs of the original, or compare what its rules pay with the rules of the
core.

    settings   `LegacyRewardSpec`: the settings `reward.legacy.*`, weights and caps of all rules
    kernels    arithmetic on rows of slots: credit, warnings, rents, shaping
    rules      `shaped`, `escrow`, `simplified`, `basic`, `basic_plus`: ledgers from step to step

The extra plugs in at the entry points `morphogen.rewards`, for the rules, and `morphogen.settings`,
for the group of settings, which also sets the penalty for a rollback under these rules where none
is given.

    morphogen train --reward shaped --set reward.legacy.rent_weight=0.2

`morphogen rewards` prints what each rule pays scripted policies.  Golden rows of the original hold
the rules in place (`tests/golden`).

`settings` loads no torch; `kernels` and `rules` do.
"""
