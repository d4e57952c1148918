"""Train a policy that grows neural networks: many small hosts side by side, seeds in their slots.

Once per training epoch the policy picks one action per env: germinate a seed, set its blending, keep it (fossilize),
prune it, or wait.  PPO trains the policy on the worth of the grown network minus the price of its parameters.
The package is for research on growing networks and on reinforcement learning of such decisions.

The state of all envs is one stacked tree of tensors (`EnvState`).  Every step is a pure function of that tree
(`rules`, `nets`, `steps`, `learn`); `engine` composes the steps and alone decides when the host waits for the device.

    import morphogen as mg
    result = mg.train_ppo_vectorized(mg.RunSpec(task="digits", rounds=10))

Entry points: `make` builds an environment, which moves many hosts epoch by epoch under any policy, and `make_env` the
same for TorchRL;
`train_ppo_vectorized` and `resume` run and continue a training, `play` plays a policy, `tables` and
`report` read a run back, `RunSpec` and its groups hold every setting, `Scheduler` with `Parts` runs a training,
`run_epoch`, `Rollout`, `init_learner` and `update` are its parts for a loop of your own, `testing` holds the laws for
masks, steps and rewards of your own.  `__all__` lists every public name.

Importing the package loads neither torch nor any module: a name is imported on first use.  Below: the manual of the
command line and of run directories (`MANUAL.md`), then the names of the original system (`ORIGINAL_NAMES.md`).

.. include:: MANUAL.md
.. include:: ORIGINAL_NAMES.md
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers: the same names as in _HOMES, checked by tests/meta/test_readme.py
    from morphogen.adapters.torchrl_env import MorphogenEnv as MorphogenEnv
    from morphogen.adapters.torchrl_env import make_env as make_env
    from morphogen.analysis.inspect_run import tables as tables
    from morphogen.analysis.report import report as report
    from morphogen.config.config_files import dump_config as dump_config
    from morphogen.config.config_files import parse_config as parse_config
    from morphogen.config.groups import AttributionSpec as AttributionSpec
    from morphogen.config.groups import CheckpointSpec as CheckpointSpec
    from morphogen.config.groups import DataSpec as DataSpec
    from morphogen.config.groups import EngineSpec as EngineSpec
    from morphogen.config.groups import GovernorSpec as GovernorSpec
    from morphogen.config.groups import HostSpec as HostSpec
    from morphogen.config.groups import LifecycleSpec as LifecycleSpec
    from morphogen.config.groups import PolicySpec as PolicySpec
    from morphogen.config.groups import PpoSpec as PpoSpec
    from morphogen.config.groups import RewardSpec as RewardSpec
    from morphogen.config.groups import SignalSpec as SignalSpec
    from morphogen.config.spec import RunSpec as RunSpec
    from morphogen.config.spec import resolve as resolve
    from morphogen.config.task import PRESETS as PRESETS
    from morphogen.config.task import TASKS as TASKS
    from morphogen.config.task import InstanceSpec as InstanceSpec
    from morphogen.config.telemetry_spec import TelemetrySpec as TelemetrySpec
    from morphogen.engine import actions as actions
    from morphogen.engine.environment import Environment as Environment
    from morphogen.engine.environment import Step as Step
    from morphogen.engine.episodes import Epoch as Epoch
    from morphogen.engine.episodes import Rollout as Rollout
    from morphogen.engine.episodes import reset_hidden as reset_hidden
    from morphogen.engine.episodes import run_epoch as run_epoch
    from morphogen.engine.make import make as make
    from morphogen.engine.phases import PolicyInputs as PolicyInputs
    from morphogen.engine.policies import build_arm as build_arm
    from morphogen.engine.scheduler import Hooks as Hooks
    from morphogen.engine.scheduler import Parts as Parts
    from morphogen.engine.scheduler import Scheduler as Scheduler
    from morphogen.errors import CheckpointError as CheckpointError
    from morphogen.errors import ConfigError as ConfigError
    from morphogen.errors import DataError as DataError
    from morphogen.errors import DeviceError as DeviceError
    from morphogen.errors import ScheduleError as ScheduleError
    from morphogen.errors import TrainingDiverged as TrainingDiverged
    from morphogen.evaluation.play import play as play
    from morphogen.learn.learner import Learner as Learner
    from morphogen.learn.learner import PpoLearner as PpoLearner
    from morphogen.learn.learner import Round as Round
    from morphogen.learn.loss import coefficients_at as coefficients_at
    from morphogen.run.train import resume as resume
    from morphogen.run.train import train_ppo_vectorized as train_ppo_vectorized
    from morphogen.state.decision import ActionOutcome as ActionOutcome
    from morphogen.state.decision import ActionSpec as ActionSpec
    from morphogen.state.env import EnvState as EnvState
    from morphogen.state.measure import RewardInputs as RewardInputs
    from morphogen.storage.checkpoint_files import load_checkpoint as load_checkpoint
    from morphogen.storage.checkpoint_files import load_policy as load_policy
    from morphogen.telemetry.kinds.round import BatchSummary as BatchSummary

_HOMES = {
    "adapters.torchrl_env": "MorphogenEnv make_env",
    "analysis.inspect_run": "tables",
    "analysis.report": "report",
    "config.config_files": "dump_config parse_config",
    "config.groups": "AttributionSpec CheckpointSpec DataSpec EngineSpec GovernorSpec HostSpec LifecycleSpec "
    "PolicySpec PpoSpec RewardSpec SignalSpec",
    "config.spec": "RunSpec resolve",
    "config.task": "InstanceSpec PRESETS TASKS",
    "config.telemetry_spec": "TelemetrySpec",
    "engine.environment": "Environment Step",
    "engine.episodes": "Epoch Rollout reset_hidden run_epoch",
    "engine.make": "make",
    "engine.phases": "PolicyInputs",
    "engine.policies": "build_arm",
    "engine.scheduler": "Hooks Parts Scheduler",
    "errors": "CheckpointError ConfigError DataError DeviceError ScheduleError TrainingDiverged",
    "evaluation.play": "play",
    "learn.loss": "coefficients_at",
    "learn.learner": "Learner PpoLearner Round",
    "run.train": "resume train_ppo_vectorized",
    "state.decision": "ActionOutcome ActionSpec",
    "state.env": "EnvState",
    "state.measure": "RewardInputs",
    "storage.checkpoint_files": "load_checkpoint load_policy",
    "telemetry.kinds.round": "BatchSummary",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_PACKAGES = (
    *("adapters", "analysis", "cli", "config", "data", "device", "engine", "errors", "evaluation", "kernels"),
    *("learn", "nets", "rules", "run", "state", "steps", "storage", "telemetry", "testing", "vocab"),
)
_MODULES = {name: name for name in _PACKAGES} | {"actions": "engine.actions"}
__all__ = sorted([*_HOME, *_MODULES, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


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
    return __all__
