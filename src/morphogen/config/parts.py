"""Registries of the parts that can come from outside, and the one form in which they come
(`config.registry`).

Tasks and presets are registered in `config.task`.  A part is a plain object, or a function
that builds it from the spec of a run:

    registry     setting            entry points          part
    TASKS        task               morphogen.tasks       `TaskSpec`
    DATASETS     data.name          morphogen.datasets    function (folder) -> stored samples, see
                 `data.splits`
    HOSTS        host.name          morphogen.hosts       object of a class that derives from `Host`
    BLUEPRINTS   blueprints         morphogen.blueprints  object of a class that derives from
                 `SeedModule`
    RULES        reward.rule        morphogen.rewards     function (RewardSpec, Terms) -> Rule
    NETWORKS     policy.network     morphogen.networks    `PolicyNetwork`, or function (RunSpec) ->
                 PolicyNetwork
    LEARNERS     policy_name        morphogen.learners    `Learner`: trains the policy of the run
    POLICIES     policy_name        morphogen.policies    `Policy`, or function (RunSpec, Limits) ->
                 Policy; not trained; its method `control`, if any, narrows its choices
    FILE_POLICIES policy_name       morphogen.file_policies  function (path, RunSpec, Limits) ->
                 Policy of a file, named `NAME:FILE`
    PRESETS      preset             morphogen.presets     settings in the form of a config file
    KINDS        kind of a task     morphogen.kinds       `TaskKind`: trains and validates the envs
                 of the task
    ARMS         --arms             morphogen.arms        function (context, episodes, results) ->
                 `ArmResult`
    LOGGERS      telemetry.loggers  morphogen.loggers     class of sinks, see
                 `log.writer.LoggerPlace`
    LOSSES       loss of a task     morphogen.losses      function (output, target) -> loss of each
                 sample
    SCORES       score of a task    morphogen.scores      function (output, target) -> score of each
                 sample, in 0 .. 1
    FEEDS        data.placement     morphogen.feeds      class of `data.feed.Feed` for a vector env
    COMPILERS    engine.compile     morphogen.compilers  class of `env.units.Units` (spec, device,
                 clock)

Extras of this distribution alone offer more (`config.registry.extra_parts`):

    morphogen.events     tuple of `log.derive.EventRule`
    morphogen.surveys    function (observation, hidden, scaling before, scaling after, exchange) ->
                         0-d tensors by name
    morphogen.monitors   class of `log.monitors.Monitor`
    morphogen.settings   class of `config.extra_settings.ExtraSpec`
    morphogen.graphs     class of `env.capture.Graphs`, by type of a device
    morphogen.timers     class of `device.profiler.NullTimer`
    morphogen.criteria   function (TaskSpec, Splits, Host, name) -> (Splits, `Criterion`)
    morphogen.keepers    function (setup, transfers) -> `train.held_out_plays.Keeper`
    morphogen.inspections  function (run directory) -> rows of a table, by its title
    morphogen.plain      module with `build_seed` and `build_gate`, by kind of features
    morphogen.plain_hosts  function (host, leaves, instance) -> module of plain torch, by class
"""

from collections.abc import Callable
from typing import Any

from morphogen.config.host import Host
from morphogen.config.registry import Registry
from morphogen.vocab.blueprint import CNN_BLUEPRINTS
from morphogen.vocab.objective import ACCURACY, CROSS_ENTROPY

Function = Callable[..., Any]
_RULES = ("sparse", "delta", "value", "rent", "loss", "anytime")

DATASETS: Registry[Function] = Registry(
    "data set",
    setting="data.name",
    group="morphogen.datasets",
    expected="a function (folder) -> Splits",
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
    is_part=lambda part: (
        hasattr(part, "leaves") and hasattr(part, "delta") and not isinstance(part, type)
    ),
    core={kind.label: f"morphogen.hosts.cnn_seeds:{kind.name}" for kind in CNN_BLUEPRINTS},
)
RULES: Registry[Function] = Registry(
    "reward rule",
    setting="reward.rule",
    group="morphogen.rewards",
    expected="a function (spec, terms) -> rule",
    core={name: f"morphogen.rules.rewards.own:build_{name}" for name in _RULES},
)
NETWORKS: Registry[Any] = Registry(
    "policy network",
    setting="policy.network",
    group="morphogen.networks",
    expected="a PolicyNetwork, or a function (spec) that returns one",
    is_part=lambda part: hasattr(part, "unroll") or callable(part),
    core={"lstm": "morphogen.policy.policy_network:build_lstm"},
)
LEARNERS: Registry[Any] = Registry(
    "learner",
    setting="policy_name",
    group="morphogen.learners",
    expected="an object of a class that derives from Learner",
    is_part=lambda part: (
        hasattr(part, "update") and hasattr(part, "init") and not isinstance(part, type)
    ),
    core={"ppo": "morphogen.ppo.update:PPO"},
)
POLICIES: Registry[Any] = Registry(
    "policy",
    setting="policy_name",
    group="morphogen.policies",
    expected="an object with init, initial_hidden and act, or a function (spec, limits) that "
    "returns one",
    is_part=lambda part: hasattr(part, "act") or callable(part),
    core={
        "wait": "morphogen.env.action_control:build_wait",
        "random": "morphogen.policy.baselines:build_random",
        "heuristic": "morphogen.policy.heuristic:build_heuristic",
    },
)
FILE_POLICIES: Registry[Function] = Registry(
    "policy of a file",
    setting="policy_name",
    group="morphogen.file_policies",
    expected="a function (path, spec, limits) that returns a policy",
    core={"reactive": "morphogen.env.policies:load_heuristic"},
)
KINDS: Registry[Any] = Registry(
    "task kind",
    setting="kind",
    group="morphogen.kinds",
    expected="an object of a class that derives from TaskKind",
    is_part=lambda part: hasattr(part, "train") and hasattr(part, "validate"),
    core={"networks": "morphogen.env.trained_networks:NETWORKS"},
)
ARMS: Registry[Function] = Registry(
    "arm",
    setting="arms",
    group="morphogen.arms",
    expected="a function (context, episodes, results) -> ArmResult",
)
LOGGERS: Registry[Any] = Registry(
    "logger",
    setting="telemetry.loggers",
    group="morphogen.loggers",
    expected="a class of sinks with a class method `check`",
    is_part=lambda part: callable(part) and hasattr(part, "check"),
)
LOSSES: Registry[Function] = Registry(
    "loss",
    group="morphogen.losses",
    expected="a function (output, target) -> loss of each sample",
    core={CROSS_ENTROPY: "morphogen.hosts.answers:answer_losses"},
)
SCORES: Registry[Function] = Registry(
    "score",
    group="morphogen.scores",
    expected="a function (output, target) -> score of each sample",
    core={ACCURACY: "morphogen.hosts.answers:right_answers"},
)
FEEDS: Registry[Function] = Registry(
    "feed",
    setting="data.placement",
    group="morphogen.feeds",
    expected="a class that derives from Feed",
)
COMPILERS: Registry[Function] = Registry(
    "compiler",
    setting="engine.compile",
    group="morphogen.compilers",
    expected="a class that derives from Units",
)
