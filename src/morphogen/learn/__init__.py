"""Training of the controller: PPO on one rollout, the baselines, and the numbers that describe an update.

For readers who ask "how is the policy trained?".  Entry points:

    update              `init_learner`, `update`: PPO epochs over env minibatches; steps that are not finite are skipped
    loss                the objective: clipped ratio per head, value, entropy, auxiliary contribution loss
    advantage           generalised advantage estimation, standardisation
    return_scale        running scale of returns
    prepare             rollout -> tensors of the update; rescaling of the critic
    schedule            learning rate, entropy and value coefficients of a round
    observation_moments exact merging of observation statistics
    baselines           policies that do not learn; `heuristic`; `whitebox_policy` is optimal for its task
    metrics             numbers that are reported of an update; `rollout_stats`: of a rollout

Everything is a pure function of tensors; the learner is one tree of tensors.
Loads torch.
"""
