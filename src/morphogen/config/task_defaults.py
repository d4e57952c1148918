"""Defaults of the runs of tasks, in the form of a config file; `task` names them in its table."""

from morphogen.config.fields import Settings

# All ops and blueprints, a seed in every slot. Groups of four envs play the same world. The first
# rounds imitate the
# rules, which grow one seed at a time: a fresh policy grows and keeps, and would see first that
# most of it costs too
# much.  Kernels of this size gain nothing from a second thread.
DIGITS_DEFAULTS: Settings = {
    "rounds": 90,
    "envs": 64,
    "max_seeds": 3,
    "final_episodes": 64,
    "host": {"norm": "batch"},
    "lifecycle": {"auto_forward": ["TRAIN", "HOLD"], "min_training_epochs": 1},
    "reward": {"rule": "value"},
    "heuristic": {"max_seeds": 1, "first_epoch": 0, "min_plateau": 0},
    "policy": {"full_bias": 5.0},
    "ppo": {
        "lr": 2e-3,
        "lr_end": 2e-4,
        "lr_anneal_rounds": 90,
        "epochs": 8,
        "target_kl": 0.1,
        "entropy_coef": 0.01,
        "entropy_coef_end": None,
        "world_envs": 4,
        "imitation_rounds": 3,
    },
    "engine": {"threads": 1},
}
# Few choices: slots move up by themselves.
TINY_DEFAULTS: Settings = {
    "rounds": 2,
    "envs": 4,
    "max_seeds": 1,
    "blueprints": ["conv_light", "conv_heavy", "bottleneck"],
    "disabled_ops": ["SET_ALPHA_TARGET"],
    "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    "policy": {"hidden": 16},
    "engine": {"threads": 1},
    "telemetry": {"level": "off"},
}
