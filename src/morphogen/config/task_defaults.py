"""Defaults of the runs of tasks, in the form of a config file; `task` names them in its table."""

from morphogen.config.fields import Settings

# All ops and blueprints, a seed in every slot.  Groups of four envs play the same world.  The first rounds imitate the
# rules, which grow one seed at a time: a fresh policy grows and keeps, and would see first that most of it costs too
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
# Phases of three classes in plain images, or of two in drowned ones: guessing alone has another loss in each.
# At these prices the best seed that stays for ever is worth about as much as it costs, and is worth most of it in the
# plain phases: who grows there alone is paid.  All is allowed; what a host sees is not told, only its price.  A slot is
# free again soon after a pruning.  A loss that rises with a new phase is no panic: the governor is left with losses
# that are not finite.  The rules forget a measurement at once: what is imitated first should not need a memory, and
# is left alone once it is likely enough: a policy that copies for sure tries nothing else for long.  Few rows
# germinate, and the largest seed costs a hundred times the least: ratios of whole actions weigh these rows like any
# other, and no bonus pays for a rare blueprint.
PHASES_DEFAULTS: Settings = {
    "rounds": 30,
    "envs": 64,
    "max_seeds": 3,
    "final_episodes": 64,
    "host": {"norm": "batch"},
    "observe": {"instance": ["param_price"]},
    "phase": {
        "hazard": 0.2,
        "least": 20,
        "classes": [3, 3],
        "views": {"plain": 1, "noisy": 1},
        "noise": 3.0,
        "noisy_classes": [2, 2],
    },
    "lifecycle": {"auto_forward": ["TRAIN", "HOLD"], "min_training_epochs": 1, "min_prune_age": 1, "embargo_epochs": 1},
    "governor": {"good_below": 0.001, "panics": 1000},
    "reward": {"rule": "anytime"},
    "heuristic": {
        "blueprints": ["depthwise"],
        "max_cost": 0.3,
        "max_seeds": 1,
        "first_epoch": 0,
        "min_plateau": 0,
        "min_loss": 0.85,
        "min_worth": -10.0,
        "patience": 1,
    },
    "policy": {
        "floor": {"op": 0.001, "slot": 0.001} | dict.fromkeys(("blueprint", "style", "tempo", "alpha_target"), 0.002)
    },
    "ppo": {
        "lr": 1e-3,
        "lr_end": 2e-4,
        "lr_anneal_rounds": 40,
        "epochs": 8,
        "target_kl": 0.1,
        "gamma": 0.99,
        "ratio": "joint",
        "entropy_coef": 0.003,
        "entropy_coef_end": None,
        "entropy_coef_head": {"slot": 0.0, "blueprint": 0.0},
        "world_envs": 4,
        "imitation_rounds": 3,
        "imitation_limit": 0.95,
    },
    "engine": {"threads": 1},
    "evaluation": {"greedy": True},  # what is drawn to explore, such as a seed that is kept for good, costs to the end
}
# Slots move up by themselves, so that what is left to learn is whether, when and which.  A fresh policy germinates at
# any time, so that some of its seeds pay; an epoch costs about the same for many hosts as for few, but for its events.
WHITEBOX_DEFAULTS: Settings = {
    "rounds": 90,
    "envs": 256,
    "max_seeds": 1,
    "final_episodes": 256,
    "blueprints": ["conv_light", "conv_heavy", "bottleneck"],
    "disabled_ops": ["SET_ALPHA_TARGET"],
    "lifecycle": {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 1},
    "policy": {
        "hidden": 64,
        "floor": {"op": 0.001, "slot": 0.001} | dict.fromkeys(("blueprint", "style", "tempo", "alpha_target"), 0.002),
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
# The view of a phase decides which blueprint helps, and is never told.  All ops; a new phase is no panic.
WHITEBOX_PHASES_DEFAULTS: Settings = {
    "rounds": 100,
    "envs": 256,
    "final_episodes": 256,
    "blueprints": ["conv_light", "depthwise", "conv_heavy"],
    "observe": {"instance": ["param_price"]},
    "phase": {"hazard": 0.1, "views": {"plain": 1, "inverted": 1, "turned": 1}},
    "lifecycle": {"auto_forward": ["TRAIN", "HOLD"], "min_training_epochs": 1, "min_prune_age": 1, "embargo_epochs": 1},
    "governor": {"enabled": False},
    "reward": {"rule": "anytime"},
    "heuristic": {"first_epoch": 0, "min_plateau": 1, "patience": 2},
    "policy": {
        "hidden": 64,
        "floor": {"op": 0.001, "slot": 0.001} | dict.fromkeys(("style", "tempo", "alpha_target"), 0.002),
    },
    "ppo": {
        "lr": 3e-3,
        "lr_end": 3e-4,
        "lr_anneal_rounds": 100,
        "epochs": 6,
        "target_kl": 0.1,
        "gamma": 0.99,
        "entropy_coef": 0.01,
        "entropy_coef_end": 0.0,
        "entropy_anneal_rounds": 50,
        "world_envs": 4,
        "imitation_rounds": 3,
    },
    "engine": {"threads": 1},
    "telemetry": {"level": "off"},
    "checkpoint": {"every_rounds": 20},
}
