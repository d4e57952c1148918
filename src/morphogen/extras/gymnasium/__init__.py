"""The environment for Gymnasium: a vector environment, and a single one, with NumPy arrays.

For readers who have an algorithm written for Gymnasium.  The package extra `gymnasium` installs the
library.

    env   `GymnasiumEnv`, `GymnasiumSingleEnv`; `join_masks`, `flatten_seen` and `flat_space` for
          policies that take one array

    import gymnasium
    envs = gymnasium.make_vec("morphogen.extras.gymnasium.env:morphogen/digits-v0", num_envs=4)

Importing `env` registers `morphogen/TASK-v0` for every task, so that
`gymnasium.make("morphogen/digits-v0")` finds it.

The adapter plugs in at the environment.  It adds spaces and arrays and computes nothing of its own:
equal actions give the rewards of a run, bit for bit.

Loads torch and Gymnasium.
"""
