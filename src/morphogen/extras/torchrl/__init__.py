"""The environment for TorchRL, and policies in both directions.

For readers who have an algorithm written for TorchRL, or want to use our policy there.

    env      `MorphogenEnv`, `make_env`: the environment, with specs and TensorDicts
    policy   `PolicyActor`: our policy as an actor of TorchRL; `ActorPolicy`: an actor of TorchRL as
             our policy;
             `FactoredDistribution`: the distribution over actions

    import morphogen as mg
    from torchrl.envs import check_env_specs
    check_env_specs(mg.make_env("digits", envs=4, seed=0))

The adapter adds specs and containers around `env.environment` and computes nothing of its own:
equal actions give the rewards of a run, bit for bit.  It plugs in at the environment and needs no
entry point: `morphogen.make_env` and its other public names are listed in `morphogen/__init__.pyi`.

Loads torch and TorchRL.
"""
