"""Registries of the parts that can come from outside, and the one form in which they come (`vocab.registry`).

Tasks are registered in `config.task`.  A part is a plain object, or a function that builds it from the spec of a run:

    registry     setting            entry points          part
    TASKS        task               morphogen.tasks       `TaskSpec`
    DATASETS     data.name          morphogen.datasets    function (folder) -> Splits, see `data.arrays`
    HOSTS        host.name          morphogen.hosts       object of a class that derives from `Host`
    BLUEPRINTS   blueprints         morphogen.blueprints  object of a class that derives from `SeedModule`
    RULES        reward.rule        morphogen.rewards     function (RewardSpec, Terms) -> Rule
    NETWORKS     policy.network     morphogen.networks    function (RunSpec) -> trainable policy
    LEARNERS     policy_name        morphogen.learners    function (RunSpec) -> learner
    POLICIES     policy_name        morphogen.policies    function (RunSpec, Limits) -> policy that is not trained
"""

from collections.abc import Callable
from typing import Any

from morphogen.vocab.blueprint import CNN_BLUEPRINTS
from morphogen.vocab.host import Host
from morphogen.vocab.registry import Registry
from morphogen.vocab.reward import CORE, LEGACY

BUILT_IN = "own"  # origin of the parts of the package
DATASETS: Registry[Callable[..., Any]] = Registry(
    "data set",
    setting="data.name",
    group="morphogen.datasets",
    expected="a function (folder) -> Splits, such as from_arrays returns",
    is_part=callable,
)
DATASETS.declare(BUILT_IN, {"digits": "data.splits:load_digits", "cifar": "data.cifar:read_cifar"})
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
)
BLUEPRINTS.declare(BUILT_IN, {kind.label: f"nets.cnn_seeds:{kind.name}" for kind in CNN_BLUEPRINTS})

RULES: Registry[Callable[..., Any]] = Registry(
    "reward rule",
    setting="reward.rule",
    group="morphogen.rewards",
    expected="a function (spec, terms) -> rule",
    is_part=callable,
)
for _origin, _home, _names in (
    (CORE, "rules.rewards.own", ("sparse", "delta", "value", "rent", "loss")),
    (LEGACY, "rules.rewards.legacy.rules", ("shaped", "escrow", "simplified", "basic", "basic_plus")),
):
    RULES.declare(_origin, {name: f"{_home}:build_{name}" for name in _names})
