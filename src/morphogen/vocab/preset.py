"""Presets: named partial configs, in the form of a config file."""

from typing import Any

Settings = dict[str, Any]

DEFAULT_PRESET = "digits"
_GENTLE: Settings = {"rounds": 200, "ppo": {"max_grad_norm": 0.5}}
_CURIOUS: Settings = {"rounds": 100, "ppo": {"entropy_coef": 0.1}}
# Lives of 36 epochs, so that a run is short; credit reaches from the horizon back to germination.  The floors keep
# every choice in play without a bonus for diversity.  Not tuned by a controlled comparison.
_SHORT: Settings = {
    "rounds": 20,
    "lifecycle": {"min_training_epochs": 4},
    "ppo": {
        "lr": 3e-3,
        "epochs": 8,
        "target_kl": 0.06,
        "gae_lambda": 0.99,
        "entropy_coef": 0.0,
        "entropy_coef_end": None,
    },
}
PRESETS: dict[str, Settings] = {
    "digits": {"task": "digits", **_SHORT},
    "digits_impaired": {"task": "digits_impaired", **_SHORT},
    "smoke": {
        "task": "digits",
        "rounds": 2,
        "envs": 4,
        "episode_length": 8,
        "data": {"minibatches": 2, "batch": 16, "val_samples": 64},
        "ppo": {"minibatches": 2},
        "policy": {"hidden": 16},
    },
    "cifar_baseline": {"task": "cifar_baseline", **_CURIOUS},
    "cifar_impaired": {"task": "cifar_impaired", **_CURIOUS},
    "cifar_minimal": {"task": "cifar_minimal", **_CURIOUS},
    "cifar_baseline_stable": {
        "task": "cifar_baseline",
        "rounds": 200,
        "ppo": {"clip": 0.1, "entropy_coef": 0.06, "entropy_coef_end": 0.03, "entropy_anneal_rounds": 50},
    },
    "cifar_scale": {"task": "cifar_scale", "rounds": 100, "ppo": {"entropy_coef": 0.08}},
    "cifar_multichannel": {"task": "cifar_multichannel", "max_seeds": 3, **_GENTLE},
    "cifar_postpool": {"task": "cifar_postpool", "max_seeds": 3, **_GENTLE},
    "cifar_highres": {"task": "cifar_highres", "max_seeds": 3, **_GENTLE},
    "cifar_deep_multichannel": {"task": "cifar_deep_multichannel", "max_seeds": 6, **_GENTLE},
    "cifar_deep_impaired": {"task": "cifar_deep_impaired", "max_seeds": 6, **_GENTLE},
}
