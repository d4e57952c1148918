"""Presets: named partial configs, in the form of a config file."""

from typing import Any

Settings = dict[str, Any]

DEFAULT_PRESET = "digits"
_SMALL_STEPS: Settings = {"rounds": 200, "ppo": {"max_grad_norm": 0.5}}
_HIGH_ENTROPY: Settings = {"rounds": 100, "ppo": {"entropy_coef": 0.1}}
# Seeds move on by themselves, and what grows is kept or left, not pruned: a seed that is not kept costs what its
# host relies on, so that the decision to germinate carries all that follows.  Prices rise over the first rounds: a
# fresh policy grows and keeps, and has to see that growing pays before it sees that most of it is too dear.  Blueprints
# that cost more than any of these gain no more.  Kernels of this size gain nothing from a second thread.
_DIGITS: Settings = {
    "rounds": 70,
    "envs": 64,
    "max_seeds": 1,
    "blueprints": ["norm", "conv_light", "depthwise", "conv_small", "attention", "conv_heavy"],
    "disabled_ops": ["SET_ALPHA_TARGET", "PRUNE"],
    "final_episodes": 64,
    "host": {"norm": "batch"},
    "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    "reward": {"rule": "value"},
    "policy": {"op_bias": {"WAIT": -1.0, "FOSSILIZE": 2.0}, "full_bias": 5.0},
    "ppo": {
        "lr": 2e-3,
        "lr_end": 2e-4,
        "lr_anneal_rounds": 70,
        "epochs": 8,
        "target_kl": 0.1,
        "entropy_coef": 0.01,
        "entropy_coef_end": None,
        "price_warmup_rounds": 30,
    },
    "engine": {"threads": 1},
}
# Slots move up by themselves, so that what is left to learn is whether, when and which.  A fresh policy germinates at
# any time, so that some of its seeds pay; an epoch costs about the same for many hosts as for few, but for its events.
_WHITEBOX: Settings = {
    "task": "whitebox",
    "rounds": 90,
    "envs": 256,
    "max_seeds": 1,
    "final_episodes": 256,
    "blueprints": ["conv_light", "conv_heavy", "bottleneck"],
    "disabled_ops": ["SET_ALPHA_TARGET"],
    "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    "policy": {
        "hidden": 64,
        "floor": {
            "op": 0.001,
            "slot": 0.001,
            "blueprint": 0.002,
            "style": 0.002,
            "tempo": 0.002,
            "alpha_target": 0.002,
        },
        "op_bias": {"WAIT": 0.0, "GERMINATE": -1.5, "PRUNE": -3.0, "FOSSILIZE": 1.0},
        "full_bias": 5.0,
    },
    "ppo": {
        "lr": 3e-3,
        "lr_end": 3e-4,
        "lr_anneal_rounds": 90,
        "epochs": 6,
        "target_kl": 0.1,
        "gamma": 1.0,
        "entropy_coef": 0.01,
        "entropy_coef_end": 0.0,
        "entropy_anneal_rounds": 25,
    },
    "engine": {"threads": 1},
    "telemetry": {"level": "off"},
    "checkpoint": {"every_rounds": 20},
}
PRESETS: dict[str, Settings] = {
    "digits": {"task": "digits", **_DIGITS},
    "digits_impaired": {"task": "digits_impaired", **_DIGITS},
    "smoke": {
        "task": "digits",
        "rounds": 2,
        "envs": 4,
        "episode_length": 8,
        "data": {"minibatches": 2, "batch": 16, "val_samples": 64},
        "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
        "ppo": {"minibatches": 2},
        "policy": {"hidden": 16, "op_bias": {"WAIT": -1.0, "PRUNE": -2.0, "FOSSILIZE": 2.0}},
        "checkpoint": {"every_rounds": 1},
    },
    "whitebox": _WHITEBOX,
    "cifar_baseline": {"task": "cifar_baseline", **_HIGH_ENTROPY},
    "cifar_impaired": {"task": "cifar_impaired", **_HIGH_ENTROPY},
    "cifar_minimal": {"task": "cifar_minimal", **_HIGH_ENTROPY},
    "cifar_baseline_stable": {
        "task": "cifar_baseline",
        "rounds": 200,
        "ppo": {"clip": 0.1, "entropy_coef": 0.06, "entropy_coef_end": 0.03, "entropy_anneal_rounds": 50},
    },
    "cifar_scale": {
        "task": "cifar_scale",
        "rounds": 100,
        "ppo": {"entropy_coef": 0.08},
        "telemetry": {"plateau_threshold": 0.35},
    },
    "cifar_multichannel": {"task": "cifar_multichannel", "max_seeds": 3, **_SMALL_STEPS},
    "cifar_postpool": {"task": "cifar_postpool", "max_seeds": 3, **_SMALL_STEPS},
    "cifar_highres": {"task": "cifar_highres", "max_seeds": 3, **_SMALL_STEPS},
    "cifar_deep_multichannel": {"task": "cifar_deep_multichannel", "max_seeds": 6, **_SMALL_STEPS},
    "cifar_deep_impaired": {"task": "cifar_deep_impaired", "max_seeds": 6, **_SMALL_STEPS},
}
