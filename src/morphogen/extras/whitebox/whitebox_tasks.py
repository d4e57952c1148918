"""The white-box tasks, and the defaults of their runs."""

from dataclasses import replace

from morphogen.config.fields import Settings
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TASKS
from morphogen.vocab.objective import ANYTIME

_SHARED: Settings = {
    "envs": 256,
    "final_episodes": 256,
    "engine": {"threads": 1},
    "telemetry": {"level": "off"},
    "checkpoint": {"every_rounds": 20},
}
_PPO: Settings = {
    "lr": 3e-3,
    "lr_end": 3e-4,
    "epochs": 6,
    "target_kl": 0.1,
    "entropy_coef": 0.01,
    "entropy_coef_end": 0.0,
}
_FLOOR = {"op": 0.001, "slot": 0.001, "style": 0.002, "tempo": 0.002, "alpha_target": 0.002}
# Slots move up by themselves, so that what is left to learn is whether, when and which. A fresh
# policy germinates at any time, so that some of its seeds pay; an epoch costs about the same for
# many hosts as for few, but for its events.
WHITEBOX_DEFAULTS: Settings = {
    **_SHARED,
    "rounds": 90,
    "max_seeds": 1,
    "blueprints": ["conv_light", "conv_heavy", "bottleneck"],
    "disabled_ops": ["SET_ALPHA_TARGET"],
    "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    "policy": {
        "hidden": 64,
        "floor": {**_FLOOR, "blueprint": 0.002},
        "op_bias": {"WAIT": 0.0, "GERMINATE": -1.5, "PRUNE": -3.0, "FOSSILIZE": 1.0},
        "full_bias": 5.0,
    },
    "ppo": {**_PPO, "lr_anneal_rounds": 90, "gamma": 1.0, "entropy_anneal_rounds": 25},
}
# The view of a regime decides which blueprint helps, and is never observed. All ops are enabled,
# and a new regime is no panic.
WHITEBOX_REGIMES_DEFAULTS: Settings = {
    **_SHARED,
    "rounds": 100,
    "blueprints": ["conv_light", "depthwise", "conv_heavy"],
    "observe": {"instance": ["param_price"]},
    "regime": {"hazard": 0.1, "views": {"plain": 1, "inverted": 1, "turned": 1}},
    "lifecycle": {
        "auto_forward": ["TRAIN", "HOLD"],
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
    },
    "governor": {"enabled": False},
    "reward": {"rule": "anytime"},
    "heuristic": {"first_epoch": 0, "min_plateau": 1, "patience": 2},
    "policy": {"hidden": 64, "floor": _FLOOR},
    "ppo": {
        **_PPO,
        "lr_anneal_rounds": 100,
        "gamma": 0.99,
        "entropy_anneal_rounds": 50,
        "world_envs": 4,
        "imitation_rounds": 3,
    },
}
WHITEBOX = replace(
    TASKS["tiny"],
    name="whitebox",
    question="does the policy find out when, where and which growth pays, where the best policy is "
    "known?",
    batch=1,
    val_samples=1,
    kind="whitebox",
    defaults=WHITEBOX_DEFAULTS,
)
WHITEBOX_REGIMES = replace(
    WHITEBOX,
    name="whitebox_regimes",
    question="does the policy see that its world has changed, where the best policy is known?",
    instance=InstanceSpec(param_price=(0.05, 1.0)),
    episode_length=32,
    success=80.0,
    objective=ANYTIME,
    defaults=WHITEBOX_REGIMES_DEFAULTS,
)
