"""Networks of all envs at once: hosts, seeds, the plan of an epoch, and the policy.

For authors of steps and learners.  Everything is a function of parameters and inputs; networks of all envs are stacked
in one axis, and each blueprint is computed once, over exactly the rows that hold it.

- `net.Net`: what is fixed for a run, the host and its enabled slots; flat parameters and their layouts
- `plan`: sizes of an epoch, padded so that few compiled graphs serve all plans; its docstring explains the way from a
  plan to logits, with a picture, and the terms
- `sites`: index lists of every slot on the device, parameters gathered and scattered by them
- `blocks`: parameters of all seeds as one flat buffer, statistics of its gradient
- `forward`: the pass through hosts and seeds under a plan
- `cnn`: the networks themselves; a new blueprint is added here and in `vocab.blueprint`
- `blend_slots`: ADD, MULTIPLY and GATE, and the gradients of a seed at every stage
- `ops`, `optim`: stacked layers, SGD and AdamW by rows, `grad_and_value`
- `policy.RecurrentPolicy`: the learned policy and the protocol `Policy`; `controller` is its network, `distribution`
  the factored distribution over actions, `normalise` the scaling of observations

Imports `rules`, `state`, `kernels` and `vocab`.  Loads torch and tensordict; never reads a value from the device.
"""
