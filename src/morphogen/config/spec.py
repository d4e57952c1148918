"""RunSpec: everything about a run, set once and validated as a whole before anything else
happens.
"""

import math
import warnings
from collections import ChainMap
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Unpack,
    cast,
)

from pydantic import Field

from morphogen.config import groups
from morphogen.config.execution_spec import CheckpointSpec, EngineSpec
from morphogen.config.extra_settings import extra_groups, with_extras
from morphogen.config.fields import (
    DERIVED,
    UNSET,
    Checks,
    Names,
    Natural,
    OneOf,
    Settings,
    Spec,
    explicit_settings,
    is_group,
    is_unset,
    merge_settings,
    spec,
    to_settings,
)
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.host import Host
from morphogen.config.instance_spec import (
    InstanceSpec,
    ObserveSpec,
    fill_ranges,
    impaired_parameters,
    reference_instance,
    variable_parameters,
)
from morphogen.config.keywords import RunFields
from morphogen.config.parts import BLUEPRINTS, FILE_POLICIES, HOSTS, LEARNERS, POLICIES
from morphogen.config.policy_spec import PolicySpec, PpoSpec
from morphogen.config.task import DEFAULT_TASK, PRESETS, TASKS
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError
from morphogen.vocab.action import TEMPO_EPOCHS, Head, Op, Tempo
from morphogen.vocab.blueprint import assign_codes
from morphogen.vocab.limits import Limits
from morphogen.vocab.slot import SlotSpec

# Built-in policies of a run: the one that PPO trains, and baselines on the same path.
POLICY_MEANINGS: dict[str, str] = {
    "ppo": "the policy network, trained by PPO after every round",
    "wait": "never does anything: what the bare host reaches",
    "random": "any legal choice, all equally likely",
    "heuristic": "rules: grow on a plateau what is cheap, keep what pays, prune the rest",
}
SplitName = Literal["validation", "test"]  # of the samples, for the accuracy of an evaluation
VALIDATION: Final = "validation"
TEST: Final = "test"
SPLITS: tuple[SplitName, ...] = (VALIDATION, TEST)
RIVALS = ("wait", "random", "heuristic")  # arms of an evaluation by default
S = TypeVar("S", bound=Spec)
# Settings that a resumed run may change: they change no number of the run, or only last bits.
RESUME_MUTABLE = (
    "rounds",
    "engine.devices",
    "engine.threads",
    "engine.compile",
    "engine.capture",
    "engine.activation_mib",
    "engine.phase_profile",
    "engine.deterministic",
    "engine.tf32",
    "engine.ranks",
    "engine.rank_per_core",
    "engine.collective_timeout_s",
    "evaluation.keep",
    "telemetry",
    "checkpoint",
)
_CONTROLLERS = ChainMap[str, Any](cast(Any, POLICIES), cast(Any, LEARNERS))
_DISABLEABLE_OPS = tuple(op.name for op in Op if op is not Op.WAIT)


def may_change_on_resume(path: str) -> bool:
    """Return whether a setting may change when a run is resumed."""
    return any(f"{path}.".startswith(f"{name}.") for name in RESUME_MUTABLE)


@spec
@with_extras
class RunSpec(Spec):
    """The configuration of a run.

    Fields that are not given come from the preset, then from the defaults of the task, then from
    the class.  Fields that are None come from the task as well, when `resolve` fills them in.  A
    field has the type that it has in a resolved spec.  The constructor takes a dict for a group, a
    list for a tuple, and a part for its name.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(task="tiny", rounds=3, ppo={"clip": 0.1})
        >>> spec.ppo.clip, spec.episode_length, spec.slots, mg.resolve(spec).slots
        (0.1, 8, None, ('r0c0', 'r1c0'))
        >>> mg.RunSpec(ppo={"clip": 3})
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: ppo.clip: expected a number less than or equal to 1, got 3
    """

    PATH: ClassVar[str] = ""

    # a dict for a group, a list for a tuple, a part for its name, None for what the task decides
    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[RunFields]) -> None: ...

    task: Annotated[str, OneOf(TASKS)] = DEFAULT_TASK
    """data and host network (default digits), as `morphogen data` lists"""
    seed: Natural = 0
    """fixes every random number of the run (default 0)"""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    """rounds; each plays one episode per env, then updates the policy"""
    envs: Annotated[int, Field(ge=1, le=65_536)] = 32
    """host networks trained side by side"""
    episode_length: Annotated[int, Field(ge=1, le=10_000)] = 16
    """epochs in the life of a host, one action each"""
    slots: Annotated[tuple[str, ...], Names(), DERIVED] = UNSET
    """places in the host where seeds may grow, e.g. r0c0 r1c0; null = from the task"""
    max_seeds: Annotated[int, Field(ge=0, le=10_000)] = 0
    """most seeds in one host at a time; 0 = no limit (default: 3 on digits, else 0)"""
    blueprints: Annotated[tuple[str, ...], Names(among=BLUEPRINTS)] = ()
    """kinds of seeds that may be germinated; none named = all that the host comes with"""
    disabled_ops: Annotated[tuple[str, ...], Names(among=_DISABLEABLE_OPS)] = ()
    """ops that the policy may never use"""
    instances: Literal["task", "single"] = "task"
    """task = hosts and data vary (default), single = all alike"""
    instance: InstanceSpec = InstanceSpec()
    policy_name: Annotated[str, OneOf(_CONTROLLERS, FILE_POLICIES)] = "ppo"
    """policy that acts: the network that a learner trains (ppo), a baseline, or one of a file"""
    final_episodes: Annotated[int, Field(ge=0, le=1_000_000), DERIVED] = UNSET
    """held-out episodes played at the end; 0 = none, null = as many as envs"""
    preset: Annotated[str, OneOf(PRESETS.keys())] | None = None
    """start from a named set of settings: a task, smoke, or another preset"""
    data: groups.DataSpec = groups.DataSpec()
    host: groups.HostSpec = groups.HostSpec()
    lifecycle: groups.LifecycleSpec = groups.LifecycleSpec()
    governor: groups.GovernorSpec = groups.GovernorSpec()
    signal: groups.SignalSpec = groups.SignalSpec()
    observe: ObserveSpec = ObserveSpec()
    attribution: groups.AttributionSpec = groups.AttributionSpec()
    heuristic: HeuristicSpec = HeuristicSpec()
    evaluation: groups.EvaluationSpec = groups.EvaluationSpec()
    reward: groups.RewardSpec = groups.RewardSpec()
    policy: PolicySpec = PolicySpec()
    ppo: PpoSpec = PpoSpec()
    engine: EngineSpec = EngineSpec()
    telemetry: TelemetrySpec = TelemetrySpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    if TYPE_CHECKING:  # the setting groups of the extras of this distribution
        regime: Any = None

    @classmethod
    def complete(cls, settings: Settings) -> Settings:
        """Put the settings of the preset, then the defaults of the task, beneath the given ones."""
        explicit = explicit_settings(settings)
        name = explicit.get("preset")
        preset = PRESETS.get(name, {}) if isinstance(name, str) else {}
        given = merge_settings({"task": DEFAULT_TASK, **preset}, explicit)
        given["task"] = TASKS.adopt(given["task"])
        if given["task"] not in TASKS:  # an unknown name is reported with the other faults
            return given
        return merge_settings(TASKS[given["task"]].defaults, given)

    def with_settings(self, **fields: Unpack[RunFields]) -> "RunSpec":
        """Return the spec with other settings.

        Args:
            fields: as in the constructor; a dict changes some fields of a group, a spec replaces
            the group.

        Raises: ConfigError with all faults, a line each.

        Example:
            >>> import morphogen as mg
            >>> spec = mg.RunSpec(ppo={"clip": 0.1}).with_settings(envs=8, ppo={"epochs": 2})
            >>> spec.envs, spec.ppo.clip, spec.ppo.epochs
            (8, 0.1, 2)
        """
        replaced = {name for name, value in fields.items() if is_group(value)}
        kept = {
            name: value
            for name, value in to_settings(self, explicit=True).items()
            if name not in replaced
        }
        return RunSpec(**merge_settings(kept, explicit_settings(dict(fields))))

    def cross_checks(self) -> Checks:
        """Slots exist, minibatches divide the envs, floors fit the slots, instances fit the
        task.
        """
        host = find_host(self)
        kinds = [name for name in blueprint_kinds(self) if name]
        floor = 0.5 / len(pick_slots(self))
        minibatches = self.ppo.minibatches
        classes = self.instance.classes
        built_in = BLUEPRINTS.builtin()
        labelled = TASKS[self.task].labelled
        variable = " and ".join(variable_parameters(host, labelled))
        checks: Checks = {
            "ppo.minibatches": (
                is_unset(minibatches) or self.envs % minibatches == 0,
                f"a divisor of envs ({self.envs})",
            ),
            "policy.floor.slot": (
                self.policy.floor[Head.SLOT] <= floor,
                f"<= {floor:g} with {len(pick_slots(self))} slots",
            ),
            "blueprints": (
                all(name in host.blueprints or name not in built_in for name in self.blueprints),
                f"names out of {', '.join(kinds)}",
            ),
        }
        for name, span in vars(self.instance).items():
            if name in impaired_parameters(self.instance, host, labelled):
                only = f"null: with the task {self.task} only {variable} may vary"
                checks[f"instance.{name}"] = (False, only)
            elif span and span[0] != span[1] and self.instances == "single":
                checks[f"instance.{name}"] = (False, 'low == high where instances is "single"')
        if classes and not min(2, host.classes) <= classes[0] <= classes[1] <= host.classes:
            most = f"2 .. {host.classes} with the task {self.task}"
            checks["instance.classes"] = (False, most)
        span = instance_ranges(self).classes if host.labelled and labelled else (0, 0)
        for path, group in extra_groups(self).items():
            found = group.host_checks(host, classes=span, observed=self.observe.instance)
            checks |= {f"{path}.{name}": check for name, check in found.items()}
        return checks


def find_host(spec: RunSpec) -> Host:
    """Return the host network of a run."""
    host = HOSTS[spec.host.name] if spec.host.name is not None else TASKS[spec.task].host
    assert isinstance(host, Host)  # a task resolves the name of its host
    settings = spec.host
    return host.configured(width=settings.width, norm=settings.norm, vocabulary=settings.vocabulary)


def blueprint_kinds(spec: RunSpec) -> tuple[str, ...]:
    """Return the name of every blueprint code in a run: first of the host, then of the
    spec.
    """
    host = find_host(spec)
    kinds = tuple(BLUEPRINTS.adopt(kind) for kind in host.blueprints)
    if unknown := [kind for kind in kinds if kind not in BLUEPRINTS]:
        known = ", ".join(BLUEPRINTS)
        raise ConfigError(
            f"blueprints of host {type(host).__name__}: expected parts, or names out of "
            f"{known}, got {unknown[0]!a}"
        )
    own = (
        name for name in spec.blueprints if name not in kinds and name not in BLUEPRINTS.builtin()
    )
    return assign_codes((*kinds, *own))


def instance_ranges(spec: RunSpec) -> InstanceSpec:
    """The ranges that instances are drawn from, every one set."""
    host = find_host(spec)
    base = TASKS[spec.task].instance if spec.instances == "task" else reference_instance(host)
    if not (host.labelled and TASKS[spec.task].labelled):
        base = replace(base, classes=(host.classes, host.classes))
    return fill_ranges(spec.instance, base)


def pick_slots(spec: RunSpec) -> tuple[SlotSpec, ...]:
    """Return the enabled slots, in slot order: as in the spec, as in the task, or all of a host
    that is named.
    """
    host = find_host(spec)
    task = TASKS[spec.task].slots
    default = task if spec.host.name is None else tuple(slot.name for slot in host.all_slots)
    return host.pick_slots(spec.slots or default)


def build_limits(spec: RunSpec) -> Limits:
    """Return the limits on the actions of the policy."""
    return Limits(
        enabled=(True,) * len(pick_slots(spec)),
        kinds=blueprint_kinds(spec),
        max_seeds=spec.max_seeds,
        min_prune_age=spec.lifecycle.min_prune_age,
        auto_forward=spec.lifecycle.auto_forward,
        disabled_ops=spec.disabled_ops,
        blueprints=spec.blueprints,
    )


class SeedTimeline(NamedTuple):
    """Epochs from a germination to the first one in which a seed can pass each gate, and be
    kept.
    """

    training: int  # past TRAIN
    blending: int  # past BLEND
    holding: int  # past HOLD
    fossilizing: int


def seed_timeline(spec: RunSpec, tempo: Tempo) -> SeedTimeline:
    """Fewest epochs that a seed needs in each stage under a resolved spec; a gate that a tick opens
    costs no epoch.
    """
    life = spec.lifecycle
    by_hand = {gate: gate not in life.auto_forward for gate in ("TRAIN", "HOLD")}
    blending = max(TEMPO_EPOCHS[tempo], 0 if life.permissive_gates else life.min_blending_epochs)
    training = int(by_hand["TRAIN"])
    trained = training + max(1, life.min_training_epochs)
    blended = trained + blending
    return SeedTimeline(training, trained, blended, blended + by_hand["HOLD"])


def warn_of_short_episodes(spec: RunSpec) -> None:
    """Warn if no seed can be kept within an episode of a resolved spec."""
    if seed_timeline(spec, Tempo.FAST).fossilizing >= spec.episode_length:
        warnings.warn(
            f"no seed can be kept in {spec.episode_length} epochs: raise episode_length, or lower "
            "lifecycle.min_training_epochs",
            stacklevel=3,
        )


def param_budget(spec: RunSpec) -> int:
    """Parameters whose price is `param_price`: the task's number, or the largest choice in every
    declared slot.

    Raises: ConfigError where no blueprint fits the host.
    """
    budget = TASKS[spec.task].param_budget
    limits = build_limits(spec)
    host = find_host(spec)
    if budget is not None:
        return budget
    allowed = [
        BLUEPRINTS[host.module_name(limits.kinds[code])] for code in limits.allowed_blueprints
    ]
    if not allowed:
        raise ConfigError(f"blueprints: expected at least one for hosts of task {spec.task}, got 0")
    return sum(max(kind.params(slot.channels) for kind in allowed) for slot in host.all_slots)


def resolve(spec: RunSpec) -> RunSpec:
    """Set every field that the task or the reward rule decides; resolving twice changes nothing.

    Returns: a spec in which every field has a value of its type.  `RunSpec.rounds` and other given
    values stay.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.resolve(mg.RunSpec(task="tiny", envs=8))
        >>> spec.slots, spec.episode_length, spec.ppo.minibatches, spec.final_episodes
        (('r0c0', 'r1c0'), 8, 4, 8)
        >>> mg.resolve(spec) == spec
        True
    """
    return replace(
        spec,
        slots=tuple(slot.name for slot in pick_slots(spec)),
        final_episodes=spec.envs if is_unset(spec.final_episodes) else spec.final_episodes,
        instance=instance_ranges(spec),
        data=_fill(spec.data, name=TASKS[spec.task].dataset),
        host=_fill(spec.host, width=find_host(spec).width),
        evaluation=_fill(spec.evaluation, episodes=max(2, min(16, spec.envs // 4))),
        reward=spec.reward.fill_defaults(),
        ppo=_fill(spec.ppo, minibatches=math.gcd(4, spec.envs)),
    )


def _fill(group: S, **defaults: Any) -> S:
    """Replace the fields that are None."""
    return replace(
        group, **{name: value for name, value in defaults.items() if getattr(group, name) is None}
    )
