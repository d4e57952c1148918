"""State of a run as frozen, stacked tensors, its random streams, and the tools that change it.

For authors of rules and steps: a function takes these classes and returns new ones, nothing is
written in place.  All envs are stacked in axis 0, every leaf is a tensor on one device, capacity is
fixed and growth is data.

- `env.EnvState`: everything that an epoch reads or writes, with the parts `HostState`, `Slots`,
  `Signals`, `Governor`, `Instance` and `Clock`; every leaf is declared with dtype, shape and unit
- `decision`: `Observation`, `ActionMasks`, `ActionSpec`, `ActionOutcome`, `ActOutput`
- `measure`: results of an epoch, from `InputBatch` and `TrainMetrics` to `RewardInputs` and
  `StepScore`
- `schema`: the leaves of `EnvState` as a table with their empty values; `empty_state` builds a
  state
- `rng`: counter-based streams.  A draw is a function of (seed, env, purpose, round, epoch,
  minibatch); no generator exists
- `tree_ops`: `replace`, `select`, `masked_update`, `unsafe_new` for trees of tensors;
  `select_slots` and `zero_empty_slots` for the storage of seeds; `constant_table`

Imports `vocab` and `kernels` only.  Loads torch and tensordict; never reads a value from the
device.
"""
