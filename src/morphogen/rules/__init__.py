"""Mathematics of envs, slots and rewards: tensors or parts of the state in, tensors out, never a whole state.

For readers who ask where a decision is made; `steps` puts these functions in order.

- `legality`: legal ops per slot and the action masks.  PRUNE, as every op: stages in `ALLOWED_STAGES`, least age and
  other conditions in `conditions`
- `decode`: head indices to an executable action, or WAIT with a `Reason`
- `gates.check_gate`: the checks before TRAINING, BLENDING, HOLDING and FOSSILIZED
- `transition`: moves between stages, removal, and the leaves changed by each; `alpha`: ramps of alpha
- `attribution`: coalitions to evaluate, contributions, interactions; `shapley` holds their weights
- `signals`: histories, plateau, stability; `features`: blocks of the observation
- `vitals`: panic and rollback of a diverged env
- `health`: gradients of seeds and layers, size of the policy's memory
- `counts`: parameters in use and their price; `stages`: sets of stages as masks; `stats`: masked moments
- `seed_detectors`: reported signs of false credit, used by no reward
- `rewards`: reward rules; `rewards.table.register` adds one, `rewards.own` holds the default family
- `whitebox`: the task whose optimum is known

Imports `config`, `state` and `vocab`.  Loads torch and tensordict; never reads a value from the device.
"""
