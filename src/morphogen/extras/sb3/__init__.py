"""The environment for Stable-Baselines3, with action masks for MaskablePPO.

For readers who have an algorithm written for Stable-Baselines3.  The package extra `sb3` installs
the library, and sb3-contrib.

    vec_env   `MorphogenVecEnv`: all envs as one `VecEnv`, flat observations, one mask a head

    from sb3_contrib import MaskablePPO
    from morphogen.extras.sb3.vec_env import MorphogenVecEnv
    MaskablePPO("MlpPolicy", MorphogenVecEnv(8, task="digits")).learn(1_000)

It plugs in at the environment of the extra `gymnasium`, which it holds, and cannot be kept without
it.

The adapter computes nothing of its own: equal actions give the rewards of a run, bit for bit.

Loads torch, Gymnasium and Stable-Baselines3.
"""
