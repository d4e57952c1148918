"""Evaluation of policies on held-out instances: baselines, statistics, search, and the oracle.

For readers who ask "is the policy better than a fixed schedule?".  Entry points:

    play                 `play`: episodes of one arm on held-out instances;
                         the evaluation at the end of a run
    arms                 table from names to players; grown networks trained from their start (static baseline);
                         the best schedule of a portfolio for each instance (hindsight oracle)
    evaluate             the command `evaluate`: all arms in the same worlds, tables and `evaluation.json`
    bootstrap            intervals, paired differences, performance profiles
    schedule_search      candidates of fixed schedules and their neighbours
    successive_halving   the command `tune`: the best fixed schedule, and a portfolio

All arms see the same instances, batches and noise (common random numbers), so differences are paired.
Loads torch.
"""
