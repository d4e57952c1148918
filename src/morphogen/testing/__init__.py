"""The project's own test equipment, public: write a step, a mask or a reward rule, and hold it to the same laws.

    strategies  Hypothesis strategies: small states that can be reached, limits, actions, reward inputs, trajectories
    laws        what every step, rule and reward rule promises; a broken law is one sentence with its smallest example
    audit       does a function ever ask the host?
    oracles     the rules written out by hand, one cell at a time, without the tables of the package
    scenes      small states put together by hand, for single cases
    epoch       an epoch without networks: what is measured is made up
    trees       comparing, cutting and reordering trees of tensors

    from morphogen.testing import laws, strategies
    laws.check_rule(my_mask, strategies.slot_states())

`strategies` and `laws` need Hypothesis: `pip install "morphogen[test]"`.  The rest needs the package alone.
"""
