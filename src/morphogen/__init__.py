"""Train a policy that grows neural networks: many small hosts side by side, seeds in their slots.

Once per training epoch the policy picks one action per env: germinate a seed, set its blending, keep it (fossilize),
prune it, or wait.  PPO trains the policy on the worth of the grown network minus the price of its parameters.
The package is for research on growing networks and on reinforcement learning of such decisions.

The state of all envs is one stacked tree of tensors (`EnvState`).  Every step is a pure function of that tree
(`rules`, `nets`, `steps`, `learn`); `engine` composes the steps and alone decides when the host waits for the device.

    import morphogen as mg
    result = mg.train_ppo_vectorized(mg.RunSpec(task="digits", rounds=10))

Entry points: `make` builds an environment, which moves many hosts epoch by epoch under any policy, and `make_env` the
same for TorchRL; `train_ppo_vectorized` and `resume` run and continue a training, `play` plays a policy, `tables` and
`report` read a run back, `RunSpec` and its groups hold every setting, `Scheduler` with `Parts` runs a training,
`run_epoch`, `Rollout` and `PpoLearner` are its parts for a loop of your own, `TASKS`, `HOSTS`, `BLUEPRINTS`, `RULES`
and the other registries take parts of your own, `testing` holds their laws.  `dir(morphogen)` lists every public name:
classes and functions, the packages, and the modules `actions` (`engine.actions`) and `rng` (`state.rng`).

Importing the package loads neither torch nor any module: a name is imported on first use.  Below: the manual of the
command line and of run directories (`MANUAL.md`), then the names of the original system (`ORIGINAL_NAMES.md`).

.. include:: MANUAL.md
.. include:: ORIGINAL_NAMES.md
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers: the same names as in _HOMES, checked by tests/meta/test_public_names.py
    from morphogen import adapters as adapters
    from morphogen import analysis as analysis
    from morphogen import cli as cli
    from morphogen import config as config
    from morphogen import data as data
    from morphogen import device as device
    from morphogen import engine as engine
    from morphogen import errors as errors
    from morphogen import evaluation as evaluation
    from morphogen import extras as extras
    from morphogen import kernels as kernels
    from morphogen import learn as learn
    from morphogen import nets as nets
    from morphogen import rules as rules
    from morphogen import run as run
    from morphogen import state as state
    from morphogen import steps as steps
    from morphogen import storage as storage
    from morphogen import telemetry as telemetry
    from morphogen import testing as testing
    from morphogen import vocab as vocab
    from morphogen.adapters.torchrl_env import MorphogenEnv as MorphogenEnv
    from morphogen.adapters.torchrl_env import make_env as make_env
    from morphogen.adapters.torchrl_policy import ActorPolicy as ActorPolicy
    from morphogen.adapters.torchrl_policy import FactoredDistribution as FactoredDistribution
    from morphogen.adapters.torchrl_policy import PolicyActor as PolicyActor
    from morphogen.analysis.inspect_run import tables as tables
    from morphogen.analysis.report import report as report
    from morphogen.analysis.run_log import events as events
    from morphogen.cli.compare import compare as compare
    from morphogen.config.config_files import dump_config as dump_config
    from morphogen.config.config_files import parse_config as parse_config
    from morphogen.config.execution_spec import CheckpointSpec as CheckpointSpec
    from morphogen.config.execution_spec import EngineSpec as EngineSpec
    from morphogen.config.groups import AttributionSpec as AttributionSpec
    from morphogen.config.groups import DataSpec as DataSpec
    from morphogen.config.groups import EvaluationSpec as EvaluationSpec
    from morphogen.config.groups import GovernorSpec as GovernorSpec
    from morphogen.config.groups import HostSpec as HostSpec
    from morphogen.config.groups import LifecycleSpec as LifecycleSpec
    from morphogen.config.groups import RewardSpec as RewardSpec
    from morphogen.config.groups import SignalSpec as SignalSpec
    from morphogen.config.heuristic_spec import HeuristicSpec as HeuristicSpec
    from morphogen.config.instance_spec import InstanceSpec as InstanceSpec
    from morphogen.config.instance_spec import ObserveSpec as ObserveSpec
    from morphogen.config.parts import BLUEPRINTS as BLUEPRINTS
    from morphogen.config.parts import DATASETS as DATASETS
    from morphogen.config.parts import HOSTS as HOSTS
    from morphogen.config.parts import LEARNERS as LEARNERS
    from morphogen.config.parts import NETWORKS as NETWORKS
    from morphogen.config.parts import POLICIES as POLICIES
    from morphogen.config.parts import RULES as RULES
    from morphogen.config.policy_spec import PolicySpec as PolicySpec
    from morphogen.config.policy_spec import PpoSpec as PpoSpec
    from morphogen.config.spec import RunSpec as RunSpec
    from morphogen.config.spec import resolve as resolve
    from morphogen.config.task import PRESETS as PRESETS
    from morphogen.config.task import TASKS as TASKS
    from morphogen.config.task import TaskSpec as TaskSpec
    from morphogen.config.telemetry_spec import TelemetrySpec as TelemetrySpec
    from morphogen.data.arrays import from_arrays as from_arrays
    from morphogen.data.arrays import from_torch as from_torch
    from morphogen.data.splits import Samples as Samples
    from morphogen.data.splits import Splits as Splits
    from morphogen.data.token_text import TextSplits as TextSplits
    from morphogen.data.token_text import TokenText as TokenText
    from morphogen.engine import actions as actions
    from morphogen.engine.action_control import MaskControl as MaskControl
    from morphogen.engine.environment import Environment as Environment
    from morphogen.engine.episodes import Epoch as Epoch
    from morphogen.engine.episodes import Rollout as Rollout
    from morphogen.engine.episodes import reset_hidden as reset_hidden
    from morphogen.engine.episodes import run_epoch as run_epoch
    from morphogen.engine.make import make as make
    from morphogen.engine.phases import PolicyInputs as PolicyInputs
    from morphogen.engine.phases import Step as Step
    from morphogen.engine.policies import Arm as Arm
    from morphogen.engine.policies import build_arm as build_arm
    from morphogen.engine.scheduler import Hooks as Hooks
    from morphogen.engine.scheduler import Parts as Parts
    from morphogen.engine.scheduler import Scheduler as Scheduler
    from morphogen.engine.setup import Setup as Setup
    from morphogen.engine.setup import build_setup as build_setup
    from morphogen.errors import CheckpointError as CheckpointError
    from morphogen.errors import ConfigError as ConfigError
    from morphogen.errors import DataError as DataError
    from morphogen.errors import DeviceError as DeviceError
    from morphogen.errors import ScheduleError as ScheduleError
    from morphogen.errors import TrainingDiverged as TrainingDiverged
    from morphogen.evaluation.arms import play_arms as play_arms
    from morphogen.evaluation.bootstrap import improvement_probability as improvement_probability
    from morphogen.evaluation.bootstrap import interval as interval
    from morphogen.evaluation.evaluate import evaluate as evaluate
    from morphogen.evaluation.play import ArmResult as ArmResult
    from morphogen.evaluation.play import play as play
    from morphogen.learn.learner import Learner as Learner
    from morphogen.learn.learner import PpoLearner as PpoLearner
    from morphogen.learn.learner import Round as Round
    from morphogen.nets.host_networks import HostNetworks as HostNetworks
    from morphogen.nets.host_networks import HostRows as HostRows
    from morphogen.nets.layout import ParamLayout as ParamLayout
    from morphogen.nets.layout import ParamLeaf as ParamLeaf
    from morphogen.nets.layout import fan_in_leaf as fan_in_leaf
    from morphogen.nets.net import Net as Net
    from morphogen.nets.plan import Plan as Plan
    from morphogen.nets.policy import NetworkPolicy as NetworkPolicy
    from morphogen.nets.policy import Policy as Policy
    from morphogen.nets.policy_network import LstmNetwork as LstmNetwork
    from morphogen.nets.policy_network import ModuleNetwork as ModuleNetwork
    from morphogen.nets.policy_network import PolicyNetwork as PolicyNetwork
    from morphogen.nets.seed_module import SeedModule as SeedModule
    from morphogen.rules.rewards.protocol import Rule as Rule
    from morphogen.rules.rewards.protocol import Terms as Terms
    from morphogen.rules.rewards.table import rule_from_function as rule_from_function
    from morphogen.run.session import TrainResult as TrainResult
    from morphogen.run.train import resume as resume
    from morphogen.run.train import train_ppo_vectorized as train_ppo_vectorized
    from morphogen.state import rng as rng
    from morphogen.state.decision import ActionMasks as ActionMasks
    from morphogen.state.decision import ActionOutcome as ActionOutcome
    from morphogen.state.decision import ActionSpec as ActionSpec
    from morphogen.state.decision import ActOutput as ActOutput
    from morphogen.state.decision import Observation as Observation
    from morphogen.state.env import EnvState as EnvState
    from morphogen.state.env import Instance as Instance
    from morphogen.state.env import Slots as Slots
    from morphogen.state.measure import Attribution as Attribution
    from morphogen.state.measure import GovernorReport as GovernorReport
    from morphogen.state.measure import InputBatch as InputBatch
    from morphogen.state.measure import LabelledInputs as LabelledInputs
    from morphogen.state.measure import RewardInputs as RewardInputs
    from morphogen.state.measure import SlotInputs as SlotInputs
    from morphogen.state.measure import StepScore as StepScore
    from morphogen.state.measure import TickReport as TickReport
    from morphogen.state.measure import TrainMetrics as TrainMetrics
    from morphogen.state.measure import Validation as Validation
    from morphogen.storage.checkpoint_files import load_checkpoint as load_checkpoint
    from morphogen.storage.checkpoint_files import load_policy as load_policy
    from morphogen.telemetry.kinds.round import BatchSummary as BatchSummary
    from morphogen.vocab.action import AlphaCurve as AlphaCurve
    from morphogen.vocab.action import AlphaSpeed as AlphaSpeed
    from morphogen.vocab.action import AlphaTarget as AlphaTarget
    from morphogen.vocab.action import Head as Head
    from morphogen.vocab.action import Op as Op
    from morphogen.vocab.action import Outcome as Outcome
    from morphogen.vocab.action import Reason as Reason
    from morphogen.vocab.action import Style as Style
    from morphogen.vocab.action import Tempo as Tempo
    from morphogen.vocab.blueprint import Blueprint as Blueprint
    from morphogen.vocab.host import CnnSpec as CnnSpec
    from morphogen.vocab.host import Host as Host
    from morphogen.vocab.limits import Limits as Limits
    from morphogen.vocab.observation import FEATURES as FEATURES
    from morphogen.vocab.purpose import Purpose as Purpose
    from morphogen.vocab.registry import Registry as Registry
    from morphogen.vocab.slot import SlotSpec as SlotSpec
    from morphogen.vocab.stage import Algorithm as Algorithm
    from morphogen.vocab.stage import Check as Check
    from morphogen.vocab.stage import Gate as Gate
    from morphogen.vocab.stage import Panic as Panic
    from morphogen.vocab.stage import Stage as Stage
    from morphogen.vocab.transformer_host import TransformerSpec as TransformerSpec

    __version__: str

_HOMES = {
    "adapters.torchrl_env": "MorphogenEnv make_env",
    "adapters.torchrl_policy": "ActorPolicy FactoredDistribution PolicyActor",
    "analysis.inspect_run": "tables",
    "analysis.run_log": "events",
    "analysis.report": "report",
    "cli.compare": "compare",
    "config.config_files": "dump_config parse_config",
    "config.execution_spec": "CheckpointSpec EngineSpec",
    "config.groups": "AttributionSpec DataSpec EvaluationSpec GovernorSpec HostSpec LifecycleSpec RewardSpec "
    "SignalSpec",
    "config.parts": "BLUEPRINTS DATASETS HOSTS LEARNERS NETWORKS POLICIES RULES",
    "config.policy_spec": "PolicySpec PpoSpec",
    "config.spec": "RunSpec resolve",
    "config.heuristic_spec": "HeuristicSpec",
    "config.instance_spec": "InstanceSpec ObserveSpec",
    "config.task": "PRESETS TASKS TaskSpec",
    "config.telemetry_spec": "TelemetrySpec",
    "data.arrays": "from_arrays from_torch",
    "data.splits": "Samples Splits",
    "data.token_text": "TextSplits TokenText",
    "engine.action_control": "MaskControl",
    "engine.environment": "Environment",
    "engine.episodes": "Epoch Rollout reset_hidden run_epoch",
    "engine.make": "make",
    "engine.phases": "PolicyInputs Step",
    "engine.policies": "Arm build_arm",
    "engine.scheduler": "Hooks Parts Scheduler",
    "engine.setup": "Setup build_setup",
    "errors": "CheckpointError ConfigError DataError DeviceError ScheduleError TrainingDiverged",
    "evaluation.arms": "play_arms",
    "evaluation.bootstrap": "improvement_probability interval",
    "evaluation.evaluate": "evaluate",
    "evaluation.play": "ArmResult play",
    "learn.learner": "Learner PpoLearner Round",
    "nets.host_networks": "HostNetworks HostRows",
    "nets.layout": "ParamLayout ParamLeaf fan_in_leaf",
    "nets.net": "Net",
    "nets.plan": "Plan",
    "nets.policy": "NetworkPolicy Policy",
    "nets.policy_network": "LstmNetwork ModuleNetwork PolicyNetwork",
    "nets.seed_module": "SeedModule",
    "rules.rewards.protocol": "Rule Terms",
    "rules.rewards.table": "rule_from_function",
    "run.session": "TrainResult",
    "run.train": "resume train_ppo_vectorized",
    "state.decision": "ActionMasks ActionOutcome ActionSpec ActOutput Observation",
    "state.env": "EnvState Instance Slots",
    "state.measure": "Attribution GovernorReport InputBatch LabelledInputs RewardInputs SlotInputs StepScore TickReport"
    " TrainMetrics Validation",
    "storage.checkpoint_files": "load_checkpoint load_policy",
    "telemetry.kinds.round": "BatchSummary",
    "vocab.action": "AlphaCurve AlphaSpeed AlphaTarget Head Op Outcome Reason Style Tempo",
    "vocab.blueprint": "Blueprint",
    "vocab.host": "CnnSpec Host",
    "vocab.limits": "Limits",
    "vocab.observation": "FEATURES",
    "vocab.purpose": "Purpose",
    "vocab.registry": "Registry",
    "vocab.slot": "SlotSpec",
    "vocab.stage": "Algorithm Check Gate Panic Stage",
    "vocab.transformer_host": "TransformerSpec",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_PACKAGES = (
    *("adapters", "analysis", "cli", "config", "data", "device", "engine", "errors", "evaluation", "extras"),
    *("kernels", "learn", "nets", "rules", "run", "state", "steps", "storage", "telemetry", "testing", "vocab"),
)
_MODULES = {name: name for name in _PACKAGES} | {"actions": "engine.actions", "rng": "state.rng"}
__all__ = sorted([*_HOME, *_PACKAGES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("morphogen")
    if name in _MODULES:
        return importlib.import_module(f"morphogen.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'morphogen' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"morphogen.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, *_MODULES, "__version__"])
