"""Registries of the parts that can come from outside, and the one form in which they come (`vocab.registry`).

Tasks are registered in `config.task`.  A part is a plain object, or a function that builds it from the spec of a run:

    registry     setting            entry points          part
    TASKS        task               morphogen.tasks       `TaskSpec`
    DATASETS     data.name          morphogen.datasets    function (folder) -> Splits or TextSplits, see `data`
    HOSTS        host.name          morphogen.hosts       object of a class that derives from `Host`
    BLUEPRINTS   blueprints         morphogen.blueprints  object of a class that derives from `SeedModule`
    RULES        reward.rule        morphogen.rewards     function (RewardSpec, Terms) -> Rule
    NETWORKS     policy.network     morphogen.networks    `PolicyNetwork`, or function (RunSpec) -> PolicyNetwork
    LEARNERS     policy_name        morphogen.learners    `Learner`: trains the policy of the run
    POLICIES     policy_name        morphogen.policies    `Policy`, or function (RunSpec, Limits) -> Policy; not trained
    ARMS         --arms             morphogen.arms        function (argument, Setup) -> `ArmPlayer` of `evaluation.arms`

The argument of an arm is the text after a colon in its name, such as FILE in `oracle:FILE`, or "".
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
DATASETS.declare(
    BUILT_IN,
    {
        "digits": "data.splits:DIGITS",
        "cifar": "data.cifar:CIFAR",
        "pydoc": "data.pydoc:PYDOC",
        "tinystories": "data.tinystories:TINYSTORIES",
    },
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
)
BLUEPRINTS.declare(BUILT_IN, {kind.label: f"nets.cnn_seeds:{kind.name}" for kind in CNN_BLUEPRINTS})
BLUEPRINTS.declare(
    BUILT_IN,
    {
        name: f"nets.token_seeds:{name.upper()}"
        for name in ("token_attention", "token_norm", "lora", "lora_large", "mlp_small", "mlp", "flex_attention")
    },
)

RULES: Registry[Callable[..., Any]] = Registry(
    "reward rule",
    setting="reward.rule",
    group="morphogen.rewards",
    expected="a function (spec, terms) -> rule",
    is_part=callable,
)
NETWORKS: Registry[Any] = Registry(
    "policy network",
    setting="policy.network",
    group="morphogen.networks",
    expected="a PolicyNetwork, or a function (spec) that returns one",
    is_part=lambda part: hasattr(part, "unroll") or callable(part),
)
NETWORKS.declare(BUILT_IN, {"lstm": "nets.policy_network:build_lstm"})
LEARNERS: Registry[Any] = Registry(
    "learner",
    setting="policy_name",
    group="morphogen.learners",
    expected="an object of a class that derives from Learner",
    is_part=lambda part: hasattr(part, "update") and hasattr(part, "init") and not isinstance(part, type),
)
LEARNERS.declare(BUILT_IN, {"ppo": "learn.learner:PPO"})
POLICIES: Registry[Any] = Registry(
    "policy",
    setting="policy_name",
    group="morphogen.policies",
    expected="an object with init, initial_hidden and act, or a function (spec, limits) that returns one",
    is_part=lambda part: hasattr(part, "act") or callable(part),
)
POLICIES.declare(
    BUILT_IN,
    {  # under a schedule, such as wait, one choice is left
        **dict.fromkeys(("wait", "random"), "learn.baselines:build_random"),
        "heuristic": "learn.heuristic:build_heuristic",
        **dict.fromkeys(("germinate_one", "full_cycle"), "learn.baselines:build_random"),
    },
)
ARMS: Registry[Callable[..., Any]] = Registry(
    "arm",
    setting="arms",
    group="morphogen.arms",
    expected="a function (argument, setup) that returns the player of an arm",
    is_part=callable,
)
for _origin, _home, _names in (
    (CORE, "rules.rewards.own", ("sparse", "delta", "value", "rent", "loss", "anytime")),
    (LEGACY, "rules.rewards.legacy.rules", ("shaped", "escrow", "simplified", "basic", "basic_plus")),
):
    RULES.declare(_origin, {name: f"{_home}:build_{name}" for name in _names})
