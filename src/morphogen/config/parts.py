"""Registries of the parts that can come from outside, and the one form in which they come (`config.registry`).

Tasks and presets are registered in `config.task`.  A part is a plain object, or a function
that builds it from the spec of a run:

    registry     setting            entry points          part
    TASKS        task               morphogen.tasks       `TaskSpec`
    DATASETS     data.name          morphogen.datasets    function (folder) -> stored samples, see `data.splits`
    HOSTS        host.name          morphogen.hosts       object of a class that derives from `Host`
    BLUEPRINTS   blueprints         morphogen.blueprints  object of a class that derives from `SeedModule`
    RULES        reward.rule        morphogen.rewards     function (RewardSpec, Terms) -> Rule
    NETWORKS     policy.network     morphogen.networks    `PolicyNetwork`, or function (RunSpec) -> PolicyNetwork
    LEARNERS     policy_name        morphogen.learners    `Learner`: trains the policy of the run
    POLICIES     policy_name        morphogen.policies    `Policy`, or function (RunSpec, Limits) -> Policy; not trained
    PRESETS      preset             morphogen.presets     settings in the form of a config file
"""

from collections.abc import Callable
from typing import Any

from morphogen.config.host import Host
from morphogen.config.registry import Registry
from morphogen.vocab.blueprint import CNN_BLUEPRINTS

_RULES = ("sparse", "delta", "value", "rent", "loss", "anytime")
_SCHEDULES = ("germinate_one", "full_cycle")  # one choice is left under a schedule, such as wait

DATASETS: Registry[Callable[..., Any]] = Registry(
    "data set",
    setting="data.name",
    group="morphogen.datasets",
    expected="a function (folder) -> Splits, such as from_arrays returns",
    is_part=callable,
    core={"digits": "morphogen.data.splits:DIGITS"},
)
HOSTS: Registry[Host] = Registry(
    "host",
    setting="host.name",
    group="morphogen.hosts",
    expected="an object of a class that derives from Host",
    is_part=lambda part: isinstance(part, Host),
)
BLUEPRINTS: Registry[Any] = Registry(
    "blueprint",
    setting="blueprints",
    group="morphogen.blueprints",
    expected="an object of a class that derives from SeedModule",
    is_part=lambda part: hasattr(part, "leaves") and hasattr(part, "delta") and not isinstance(part, type),
    core={kind.label: f"morphogen.nets.cnn_seeds:{kind.name}" for kind in CNN_BLUEPRINTS},
)
RULES: Registry[Callable[..., Any]] = Registry(
    "reward rule",
    setting="reward.rule",
    group="morphogen.rewards",
    expected="a function (spec, terms) -> rule",
    is_part=callable,
    core={name: f"morphogen.rules.rewards.own:build_{name}" for name in _RULES},
)
NETWORKS: Registry[Any] = Registry(
    "policy network",
    setting="policy.network",
    group="morphogen.networks",
    expected="a PolicyNetwork, or a function (spec) that returns one",
    is_part=lambda part: hasattr(part, "unroll") or callable(part),
    core={"lstm": "morphogen.nets.policy_network:build_lstm"},
)
LEARNERS: Registry[Any] = Registry(
    "learner",
    setting="policy_name",
    group="morphogen.learners",
    expected="an object of a class that derives from Learner",
    is_part=lambda part: hasattr(part, "update") and hasattr(part, "init") and not isinstance(part, type),
    core={"ppo": "morphogen.learn.learner:PPO"},
)
POLICIES: Registry[Any] = Registry(
    "policy",
    setting="policy_name",
    group="morphogen.policies",
    expected="an object with init, initial_hidden and act, or a function (spec, limits) that returns one",
    is_part=lambda part: hasattr(part, "act") or callable(part),
    core={
        **dict.fromkeys(("wait", "random"), "morphogen.learn.baselines:build_random"),
        "heuristic": "morphogen.learn.heuristic:build_heuristic",
        **dict.fromkeys(_SCHEDULES, "morphogen.learn.baselines:build_random"),
    },
)
