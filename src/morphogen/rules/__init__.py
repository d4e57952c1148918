"""Mathematics of the lifecycle: tensors or parts of the state in, tensors out; a rule never returns a whole state.

For readers who ask "when is an action legal?" or "how is a reward computed?".  Entry points:

    legality       `legal`: the one definition of legal ops per slot, PRUNE included; `action_masks` for the policy
    decode         integers of the policy -> `ActionSpec`
    gates          conditions for a slot to advance: TRAIN, BLEND, HOLD, FOSSILIZE
    stages         sets of stages as masks, ramps of alpha, moves from stage to stage and the fields that each writes
    attribution    coalitions to evaluate; contributions, interactions, detectors; `shapley`: Shapley values
    features       features of the observation; `signals`: histories, plateau, stability
    health         gradient statistics, and losses that the governor judges
    rewards        reward rules: `table.register` adds one, `table.rule_from_function` makes one from a function,
                   `own` holds the default rules, `legacy` those of the original with their known faults

Masks are bool, True means allowed.  Nothing draws, reads a clock or asks the host.
Loads torch.
"""
