"""Doors for other libraries of reinforcement learning, around the functional environment of `engine.environment`.

For readers who have an algorithm written for one of these libraries, or want to use ours there.  Entry points:

    torchrl_env      `MorphogenEnv`, `make_env`: an environment for TorchRL
    torchrl_policy   our policy as a TorchRL actor, a TorchRL actor as our policy, the distribution over actions
    gymnasium_env    `GymnasiumEnv`, `GymnasiumSingleEnv`: for Gymnasium, found as `morphogen/digits-v0`
    sb3_vec_env      `MorphogenVecEnv`: for Stable-Baselines3, with action masks

    from torchrl.envs import check_env_specs
    check_env_specs(make_env("digits", envs=4, seed=0))

    import gymnasium
    envs = gymnasium.make_vec("morphogen.extras.gymnasium.env:morphogen/digits-v0", num_envs=4)

Each door adds specs and containers and computes nothing of its own: equal actions give the rewards of the scheduler,
bit for bit.  Loads torch and the library of the door; Gymnasium is the extra `gymnasium`, Stable-Baselines3 `sb3`.
"""
