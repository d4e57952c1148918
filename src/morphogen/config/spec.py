"""RunSpec: everything about a run, set once and validated as a whole before anything else happens."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from morphogen.config.fields import Choice, Int, Names, Spec, nested, spec_field
from morphogen.config.groups import (
    AttributionSpec,
    CheckpointSpec,
    DataSpec,
    EngineSpec,
    GovernorSpec,
    HostSpec,
    LifecycleSpec,
    PolicySpec,
    PpoSpec,
    RewardSpec,
    SignalSpec,
)
from morphogen.config.instance_spec import FROM_TASK, InstanceSpec, reference_instance
from morphogen.config.legacy_rewards import LegacyRewardSpec
from morphogen.config.preset import PRESETS
from morphogen.config.task import TASKS, find_task
from morphogen.config.telemetry_spec import TelemetrySpec, WandbSpec
from morphogen.vocab.action import Head, Op
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, Blueprint, cnn_param_count
from morphogen.vocab.limits import Limits
from morphogen.vocab.slot import CnnSpec
from morphogen.vocab.text import format_value

__all__ = [
    "POLICIES",
    "RESUME_MUTABLE",
    "SCHEDULE_FILE",
    "AttributionSpec",
    "CheckpointSpec",
    "DataSpec",
    "EngineSpec",
    "GovernorSpec",
    "HostSpec",
    "InstanceSpec",
    "LegacyRewardSpec",
    "LifecycleSpec",
    "PolicySpec",
    "PpoSpec",
    "RewardSpec",
    "RunSpec",
    "SignalSpec",
    "TelemetrySpec",
    "WandbSpec",
    "build_limits",
    "cnn_spec",
    "instance_ranges",
    "may_change_on_resume",
    "param_budget",
    "resolve",
]

# Who decides: the policy that PPO trains, or a baseline on the very same path.
POLICIES: dict[str, str] = {
    "ppo": "the policy network, trained by PPO after every round",
    "wait": "never does anything: what the bare host reaches",
    "random": "any legal choice, all equally likely",
    "heuristic": "hand-written rules: grow on a plateau, keep what helps, prune what does not",
    "germinate_one": "a schedule: one norm seed in the first slot, left alone after that",
    "full_cycle": "a schedule: the fastest full life of one norm seed, from germination to fossil",
}
SPLITS = VALIDATION, TEST = ("validation", "test")  # of the samples, on which networks are judged
BASELINES = tuple(name for name in POLICIES if name != "ppo")
STATIC, STATIC_COST, ORACLE = "static", "static-cost", "oracle:"  # arms of an evaluation
RIVALS = ("wait", "random", "heuristic")  # who every policy is compared with
# What may change when a run goes on: it changes no number of it, or only its last bits.
RESUME_MUTABLE = (
    "rounds",
    "engine.devices",
    "engine.threads",
    "engine.compile",
    "engine.phase_profile",
    "telemetry",
    "checkpoint",
)
SCHEDULE_FILE = "schedule:"  # before the name of a file that declares the actions
_DISABLEABLE_OPS = tuple(op.name for op in Op if op is not Op.WAIT)


def may_change_on_resume(path: str) -> bool:
    """Return whether a setting may change when a run is resumed."""
    return any(path == one or path.startswith(f"{one}.") for one in RESUME_MUTABLE)


@dataclass(frozen=True)
class RunSpec(Spec):
    """The configuration of a run.  None = from the task, until `resolve` fills it in."""

    PATH: ClassVar[str] = ""

    task: str = spec_field("digits", Choice(names=tuple(TASKS)))
    seed: int = spec_field(0, Int(low=0, high=2**63 - 1))
    rounds: int = spec_field(50, Int(low=1, high=1_000_000))
    envs: int = spec_field(32, Int(low=1, high=65_536))
    episode_length: int = spec_field(None, Int(low=1, high=10_000, null=FROM_TASK))  # epochs
    slots: tuple[str, ...] = spec_field(None, Names(least=1, null=FROM_TASK))
    max_seeds: int = spec_field(0, Int(low=0, high=10_000))  # 0 = no limit
    blueprints: tuple[str, ...] = spec_field((), Names(among=tuple(b.label for b in CNN_BLUEPRINTS)))  # () = all
    disabled_ops: tuple[str, ...] = spec_field((), Names(among=_DISABLEABLE_OPS))
    instances: str = spec_field("task", Choice(names=("task", "single")))
    instance: InstanceSpec = field(default_factory=InstanceSpec, metadata=nested(InstanceSpec))
    policy_name: str = spec_field("ppo", Choice(names=tuple(POLICIES), prefix=SCHEDULE_FILE))
    final_episodes: int = spec_field(None, Int(low=0, high=1_000_000, null="as many as envs"))
    preset: str | None = spec_field(None, Choice(names=tuple(PRESETS), null="none"))
    data: DataSpec = field(default_factory=DataSpec, metadata=nested(DataSpec))
    host: HostSpec = field(default_factory=HostSpec, metadata=nested(HostSpec))
    lifecycle: LifecycleSpec = field(default_factory=LifecycleSpec, metadata=nested(LifecycleSpec))
    governor: GovernorSpec = field(default_factory=GovernorSpec, metadata=nested(GovernorSpec))
    signal: SignalSpec = field(default_factory=SignalSpec, metadata=nested(SignalSpec))
    attribution: AttributionSpec = field(default_factory=AttributionSpec, metadata=nested(AttributionSpec))
    reward: RewardSpec = field(default_factory=RewardSpec, metadata=nested(RewardSpec))
    policy: PolicySpec = field(default_factory=PolicySpec, metadata=nested(PolicySpec))
    ppo: PpoSpec = field(default_factory=PpoSpec, metadata=nested(PpoSpec))
    engine: EngineSpec = field(default_factory=EngineSpec, metadata=nested(EngineSpec))
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec, metadata=nested(TelemetrySpec))
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec, metadata=nested(CheckpointSpec))

    def cross_checks(self) -> list[str]:
        """Slots exist, minibatches divide the envs, floors fit the slots, instances fit the task."""
        known = [slot.name for slot in cnn_spec(self).all_slots]
        slots = self.slots or TASKS[self.task].slots
        found = [
            f"slots names {format_value(name)}; this host has {', '.join(known)}" for name in slots if name not in known
        ]
        if self.ppo.minibatches is not None and self.envs % self.ppo.minibatches:
            found.append(f"ppo.minibatches is {self.ppo.minibatches}; want a divisor of envs, which is {self.envs}")
        floor = self.policy.floor[Head.SLOT]
        if floor * len(slots) > 0.5:
            found.append(f"policy.floor.slot is {floor}; want <= {0.5 / len(slots):g} with {len(slots)} slots")
        return found + _instance_faults(self)


def _instance_faults(spec: RunSpec) -> list[str]:
    most = TASKS[spec.task].host.classes
    found = []
    if spec.instance.classes and spec.instance.classes[1] > most:
        found.append(f"instance.classes is {list(spec.instance.classes)}; want at most the {most} of {spec.task}")
    spans = vars(spec.instance) if spec.instances == "single" else {}
    wide = [(name, list(span)) for name, span in spans.items() if span and span[0] != span[1]]
    return found + [f'instance.{n} is {span}; want low == high where instances is "single"' for n, span in wide]


def cnn_spec(spec: RunSpec) -> CnnSpec:
    """The host network of a run."""
    base = find_task(spec.task).host
    return replace(base, base=base.base if spec.host.width is None else spec.host.width, norm=spec.host.norm)


def instance_ranges(spec: RunSpec) -> InstanceSpec:
    """The ranges that instances are drawn from, every one set."""
    task = find_task(spec.task)
    base = task.instance if spec.instances == "task" else reference_instance(task.host.classes, task.host.kernel)
    given = {name: span for name, span in vars(spec.instance).items() if span is not None}
    return replace(base, **given)


def build_limits(spec: RunSpec) -> Limits:
    """Return the limits on the actions of the policy."""
    slots = cnn_spec(spec).pick_slots(spec.slots or find_task(spec.task).slots)
    return Limits(
        topology=find_task(spec.task).topology,
        enabled=(True,) * len(slots),
        max_seeds=spec.max_seeds,
        min_prune_age=spec.lifecycle.min_prune_age,
        auto_forward=spec.lifecycle.auto_forward,
        disabled_ops=spec.disabled_ops,
        blueprints=spec.blueprints,
    )


def param_budget(spec: RunSpec) -> int:
    """Parameters whose price is `param_price`: the task's number, or the largest choice in every declared slot."""
    task = find_task(spec.task)
    if task.param_budget is not None:
        return task.param_budget
    allowed = [Blueprint(code) for code in build_limits(spec).allowed_blueprints]
    return sum(max(cnn_param_count(b, slot.channels) for b in allowed) for slot in cnn_spec(spec).all_slots)


def resolve(spec: RunSpec) -> RunSpec:
    """The same run with every field set that the task or the reward rule decides; resolving twice changes nothing."""
    task, cnn = find_task(spec.task), cnn_spec(spec)
    data, host, ppo, told = spec.data, spec.host, spec.ppo, spec.telemetry
    return replace(
        spec,
        episode_length=_if_none(spec.episode_length, task.episode_length),
        slots=tuple(slot.name for slot in cnn.pick_slots(spec.slots or task.slots)),
        final_episodes=_if_none(spec.final_episodes, spec.envs),
        instance=instance_ranges(spec),
        data=replace(
            data,
            batch=_if_none(data.batch, task.batch),
            minibatches=_if_none(data.minibatches, task.minibatches),
            val_samples=task.val_samples if data.val_samples == "task" else data.val_samples,
        ),
        host=replace(
            host,
            lr=_if_none(host.lr, task.lr),
            seed_lr=_if_none(host.seed_lr, task.seed_lr),
            width=_if_none(host.width, cnn.base),
        ),
        reward=spec.reward.fill_defaults(),
        ppo=replace(ppo, minibatches=_if_none(ppo.minibatches, math.gcd(4, spec.envs))),
        telemetry=replace(
            told,
            plateau_threshold=_if_none(told.plateau_threshold, task.plateau_threshold),
            improvement_threshold=_if_none(told.improvement_threshold, task.improvement_threshold),
        ),
    )


def _if_none(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
