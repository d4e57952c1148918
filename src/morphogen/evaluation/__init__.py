"""Evaluation of policies on held-out instances: baselines, other arms, statistics.

For readers who ask "is the policy better than a fixed schedule?".  Entry points:

    play         `play`: episodes of one arm on held-out instances; the evaluation that ends a run
    arms         arms by name: policies, and arms that packages offer (entry points
                 `morphogen.arms`)
    bootstrap    intervals, paired differences

An offered arm is a function `(context, episodes, results) -> ArmResult`: it gets the context of the
evaluation, the number of episodes and the results so far.

All arms see the same instances, batches and noise (common random numbers), so differences are
paired.
Loads torch.
"""
