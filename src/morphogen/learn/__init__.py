"""Training of the controller by PPO, and the policies without learning to compare with.

For readers and authors of learning algorithms.  All functions are pure; the caller draws noise and compiles.

- `update.init_learner`, `update.update`: the learner and one PPO update; clipping, Adam, the KL stop and the refusal of
  non-finite steps are decided here
- `prepare.prepare_rows`: valid envs, return units, advantages, contribution targets
- `advantage`: generalised advantage estimation; `return_scale`: running unit of returns
- `loss.ppo_loss`: policy, value, diversity and contribution terms; `schedule.coefficients_at`: their coefficients
- `metrics`: names, reductions and validity of all metrics of an update
- `observation_moments`: statistics of the observation normaliser; `rollout_stats`: statistics for telemetry
- `baselines.make_baseline`: the policies `random` and `heuristic`; `heuristic` holds the latter
- `whitebox_policy.OptimalPolicy`: the optimum of the white-box task
- `torchrl`: adapters to TorchRL distributions and batches; does not import TorchRL

Imports `nets`, `rules`, `state`, `config`, `vocab`.  Loads torch and tensordict, never reads a value from the device.
"""
