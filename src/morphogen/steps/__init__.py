"""Steps of one epoch: `(state, inputs, *, knobs) -> (state, outputs)`, pure, one file per step.

For readers and authors of the environment.  `engine.epoch` calls the steps in order; each calls `rules` for decisions.

- `observe`: features for the policy; non-finite values are removed here
- `apply`: effect of an action on the slots; vetoed, declined or executed, and PRUNE at once or along a ramp
- `tick`: cooling, ramps of alpha, auto-forward through gates
- `init_seeds`: parameters of germinated seeds; `place_fossils`: seeds fossilized from the start
- `train`: `start_epoch`, `train_minibatch`, `finish_epoch`; the non-finite step of a host or seed is skipped here;
  `minibatch_tally` holds the sums of an epoch
- `validate`: accuracy of every requested coalition
- `attribute`: contribution of each seed, stored in slots and signals
- `govern`: snapshots of healthy envs, rollback of diverged envs
- `score`: inputs of the reward rule, the reward, the end of the epoch
- `reset`: state of an env at the start of an episode
- `whitebox_steps`: training and validation of the white-box task, by formula

Imports `rules`, `nets`, `state`, `config`, `vocab`.  Loads torch and tensordict, never reads a value from the device.
"""
