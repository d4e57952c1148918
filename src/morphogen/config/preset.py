"""Presets: named partial configs, variations on the defaults of a task."""

from morphogen.config.fields import Settings
from morphogen.config.task import TASKS

DEFAULT_PRESET = "digits"
PRESETS: dict[str, Settings] = {
    **{name: {"task": name} for name in TASKS},  # the defaults of the task
    "smoke": {
        "task": "digits",
        "rounds": 2,
        "envs": 4,
        "episode_length": 8,
        "final_episodes": 4,
        "data": {"minibatches": 2, "batch": 16, "val_samples": 64},
        "ppo": {"minibatches": 2},
        "policy": {"hidden": 16},
        "checkpoint": {"every_rounds": 1},
    },
    "cifar_baseline_stable": {
        "task": "cifar_baseline",
        "rounds": 200,
        "ppo": {"clip": 0.1, "entropy_coef": 0.06, "entropy_coef_end": 0.03, "entropy_anneal_rounds": 50},
    },
}
