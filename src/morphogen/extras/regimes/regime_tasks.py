"""Digits in a world that changes, and the defaults of its runs."""

from dataclasses import replace

from morphogen.config.fields import Settings
from morphogen.config.host import CnnSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TASKS
from morphogen.vocab.objective import ANYTIME

# Regimes of three classes in plain images, or of two in drowned ones: guessing alone has another
# loss in each.
# At these prices the best seed that stays for ever gains about as much as it costs, most of it in
# the plain regimes: only growth there pays off. All actions are allowed; the regime is not
# observed, only the price is. A slot is free again soon after a pruning. A loss that rises with a
# new regime is no panic: the governor reacts only to losses that are not finite. The rules forget
# a measurement at once, because the imitated policy should need no memory. Imitation ends once its
# actions are likely enough, because a policy that copies for sure explores nothing else. Few rows
# germinate, and the largest seed costs a hundred times the least: ratios of complete actions weigh
# these rows like any
# other, and no bonus pays for a rare blueprint.
DIGITS_REGIMES_DEFAULTS: Settings = {
    "rounds": 30,
    "envs": 64,
    "max_seeds": 3,
    "final_episodes": 64,
    "host": {"norm": "batch"},
    "observe": {"instance": ["param_price"]},
    "regime": {
        "hazard": 0.2,
        "least": 20,
        "classes": [3, 3],
        "views": {"plain": 1, "noisy": 1},
        "noise": 3.0,
        "noisy_classes": [2, 2],
    },
    "lifecycle": {
        "auto_forward": ["TRAIN", "HOLD"],
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
    },
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
        "floor": {"op": 0.001, "slot": 0.001}
        | dict.fromkeys(("blueprint", "style", "tempo", "alpha_target"), 0.002)
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
    # what is drawn to explore, such as a seed that is kept for good, costs to the end
    "evaluation": {"greedy": True},
}
DIGITS = TASKS["digits"]
DIGITS_HOST = DIGITS.host
assert isinstance(DIGITS_HOST, CnnSpec)
DIGITS_REGIMES = replace(
    DIGITS,
    name="digits_regimes",
    question="does it pay to look, where what a host needs is not told and changes, and size costs "
    "as it lives?",
    host=replace(DIGITS_HOST, base=8, blocks=3, kernel=1, pools=2),
    instance=InstanceSpec(param_price=(0.15, 0.185)),
    batch=16,
    episode_length=90,
    success=70.0,
    objective=ANYTIME,
    defaults=DIGITS_REGIMES_DEFAULTS,
)
