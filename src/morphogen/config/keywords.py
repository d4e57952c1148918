"""Keywords of the entry points, for type checkers: fields of RunSpec, and names that are closed
sets.

Nothing here runs.  `tests/unit/config/test_typed_use.py` holds them equal to the spec and to the
tables of actions.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from morphogen.config.execution_spec import CheckpointSpec, EngineSpec
from morphogen.config.fields import Spec
from morphogen.config.groups import (
    AttributionSpec,
    DataSpec,
    EvaluationSpec,
    GovernorSpec,
    HostSpec,
    LifecycleSpec,
    RewardSpec,
    SignalSpec,
)
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.instance_spec import InstanceSpec, ObserveSpec
from morphogen.config.policy_spec import PolicySpec, PpoSpec
from morphogen.config.task import TaskSpec
from morphogen.config.telemetry_spec import TelemetrySpec

Group = Mapping[str, Any]  # settings of a group by name
Names = tuple[Any, ...] | list[Any] | None  # names, or parts; None: from the task
OpName = Literal["WAIT", "GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE"]


class HeadNames(TypedDict, total=False):
    """Names of the values of the heads of an action but the op."""

    slot: str
    blueprint: str
    style: Literal["LINEAR_ADD", "LINEAR_MULTIPLY", "SIGMOID_ADD", "GATED_GATE"]
    tempo: Literal["FAST", "STANDARD", "SLOW"]
    alpha_target: Literal["HALF", "SEVENTY", "FULL"]
    alpha_speed: Literal["INSTANT", "FAST", "MEDIUM", "SLOW"]
    alpha_curve: Literal["LINEAR", "COSINE", "SIGMOID_GENTLE", "SIGMOID", "SIGMOID_SHARP"]


class EnvFields(TypedDict, total=False):
    """Fields of RunSpec that are keywords of every entry point."""

    rounds: int
    episode_length: int
    slots: Names
    max_seeds: int
    blueprints: Names
    disabled_ops: Names
    instance: InstanceSpec | Group
    policy_name: object
    final_episodes: int | None
    preset: str | None
    data: DataSpec | Group
    lifecycle: LifecycleSpec | Group
    governor: GovernorSpec | Group
    signal: SignalSpec | Group
    observe: ObserveSpec | Group
    attribution: AttributionSpec | Group
    heuristic: HeuristicSpec | Group
    evaluation: EvaluationSpec | Group
    reward: RewardSpec | Group
    policy: PolicySpec | Group
    ppo: PpoSpec | Group
    engine: EngineSpec | Group
    telemetry: TelemetrySpec | Group
    regime: Spec | Group  # of the extra `regimes`


class ResumeFields(EnvFields, total=False):
    """Fields of RunSpec but the one whose name `resume` gives to something else."""

    task: str | TaskSpec
    seed: int
    envs: int
    instances: Literal["task", "single"]
    host: HostSpec | Group


class RunFields(ResumeFields, total=False):
    """Fields of RunSpec."""

    checkpoint: CheckpointSpec | Group
