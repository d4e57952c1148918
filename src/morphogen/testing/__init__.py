"""Public test kit: hold a step, a mask or a reward rule of your own to the laws that hold for those of the package.

    strategies  Hypothesis strategies: small reachable states, limits, actions, reward inputs, trajectories
    laws        promises of every step, rule and reward rule; a violation is one sentence with its smallest example
                (the tables `STEP_LAWS` and `REWARD_LAWS` in `laws.check` name them)
    audit       does a function ever ask the host?
    oracles     the rules written out by hand, one cell at a time, without the tables of the package
    builders    scenes (small states by hand), reward inputs, a synthetic epoch without networks, permuted slots,
                invariants, equality of trees

    from morphogen.testing import laws, strategies
    laws.check_rule(my_mask, strategies.slot_states())

`strategies` and `laws` need Hypothesis: `pip install "morphogen[test]"`.  The rest needs the package alone.
Loads torch.
"""
