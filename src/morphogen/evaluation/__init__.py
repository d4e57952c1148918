"""Evaluation of policies on held-out instances: baselines, statistics, search, and the oracle.

For readers who ask "is the policy better than a fixed schedule?".  Entry points:

    play                 `play`: episodes of one arm on held-out instances
    arms                 one table from a name to the way in which it is played
    evaluate             the command `evaluate`: all arms on the same worlds, tables and `evaluation.json`
    final_evaluation     the comparison at the end of a run
    bootstrap            intervals, paired differences, performance profiles
    schedule_search      candidates of fixed schedules and their neighbours
    successive_halving   the command `tune`: the best fixed schedule, and a portfolio
    hindsight_oracle     the best schedule of the portfolio for each instance
    static_baseline      the grown network trained from its start

All arms see the same instances, batches and noise (common random numbers), so differences are paired.
Loads torch.
"""
