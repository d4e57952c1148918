"""Tasks: data, host, slots and numbers of a run; and presets, named variations on the defaults of a
task.
"""

from collections.abc import Callable
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import core_schema

from morphogen.config.fields import (
    Checks,
    Constraint,
    Count,
    Names,
    Natural,
    NonNegative,
    Null,
    OneOf,
    Positive,
    Settings,
    Spec,
    spec,
)
from morphogen.config.host import CnnSpec, Host
from morphogen.config.instance_spec import (
    InstanceSpec,
    fill_ranges,
    impaired_parameters,
    reference_instance,
    variable_parameters,
)
from morphogen.config.parts import DATASETS, HOSTS, KINDS
from morphogen.config.registry import NAME, Registry
from morphogen.config.task_defaults import read_defaults
from morphogen.vocab.objective import DELIVERED, OBJECTIVES

DEFAULT_TASK = "digits"
_Numbers = Annotated[tuple[float, ...], Field(strict=False)]  # a list is one too


class _NamedHost(Constraint):
    """A host, or its name in `HOSTS`, which is replaced by the host."""

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        return " or ".join([*HOSTS, "an object of a class that derives from Host"])

    def convert(self, value: Any) -> Host:
        """Return the host."""
        host = HOSTS.get(value) if isinstance(value, str) else value
        if not isinstance(host, Host):
            raise ValueError
        return host

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.convert)


@spec
class TaskSpec(Spec):
    """A task: data, host, slots and numbers.  Settings named `data.*`, `host.*`, ... in a config
    replace these.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> host = mg.CnnSpec(
        ...     base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10
        ... )
        >>> task = mg.TaskSpec(name="small", dataset="digits", host=host, slots=("r0c0",), batch=16)
        >>> mg.make(task, envs=2).spec.task
        'small'
    """

    PATH: ClassVar[str] = "task"
    IS_PART: ClassVar[bool] = True

    name: str
    dataset: Annotated[str | Callable[..., Any], OneOf(DATASETS)]
    """Name in `DATASETS`, or the data set itself."""
    host: Annotated[str | Host, _NamedHost()]
    """Name in `HOSTS`, or the host itself."""
    question: str = "a task from outside"
    """The question the task asks, one line."""
    slots: Annotated[tuple[str, ...], Names()] = ()
    """Enabled by default; () = all of the host."""
    instance: InstanceSpec = InstanceSpec()
    """None in it = nothing impaired."""
    batch: Count = 32
    """Samples per minibatch and env."""
    minibatches: Count = 16
    """Per epoch."""
    episode_length: Count = 16
    """Epochs."""
    lr: Positive = 0.05
    """Of the host."""
    seed_lr: Positive = 0.1
    """Of the seeds."""
    success: NonNegative = 95.0
    """Accuracy in percent from which an episode counts as a success."""
    target_loss: NonNegative = 0.05
    """Loss at which learning counts as complete, nats."""
    scale: Positive = 1.0
    """A stored number is divided by this."""
    mean: Annotated[_Numbers | None, Null("of the training split")] = None
    """Per input channel, after division; None = of the training split."""
    std: Annotated[_Numbers | None, Null("of the training split")] = None
    shift: Natural = 0
    """Augmentation of images: largest shift, pixels."""
    flip: bool = False
    """Augmentation of images: mirror half of the samples."""
    val_samples: Annotated[Count | None, Null("all")] = None
    """Validation samples per epoch; None = all."""
    plateau_threshold: NonNegative = 0.5
    """Points of rolling accuracy below which a round changed nothing."""
    improvement_threshold: NonNegative = 2.0
    """Points from which one made a difference."""
    param_budget: Annotated[Count | None, Null("a fully grown network")] = None
    """Parameters that param_price is the price of; None = a fully grown network."""
    kind: Annotated[str, OneOf(KINDS)] = "networks"
    """How envs train and validate: name in `KINDS`, or the kind itself."""
    objective: Literal["delivered", "anytime"] = DELIVERED
    """Network whose value counts: delivered (the last), anytime (the present one, every epoch)."""
    defaults: Settings = field(default_factory=dict[str, Any], hash=False)
    """Of the run, in the form of a config file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        host = self.host
        assert isinstance(host, Host)  # a name was replaced
        slots = self.slots or tuple(slot.name for slot in host.all_slots)
        object.__setattr__(self, "slots", slots)
        instance = fill_ranges(self.instance, reference_instance(host))
        object.__setattr__(self, "instance", instance)

    @property
    def value_name(self) -> str:
        """Name of the value of an episode: `network value`, or `anytime value`."""
        return OBJECTIVES[self.objective]

    def cross_checks(self) -> Checks:
        """Slots, channels, augmentation and ranges of instances fit the host."""
        host = self.host
        assert isinstance(host, Host)
        known = [slot.name for slot in host.all_slots]
        images = len(host.input_shape) == 3
        channels = host.input_shape[0]
        per_channel = f"{channels} numbers, one per input channel"
        return {
            "name": (
                NAME.fullmatch(self.name) is not None,
                "letters and digits, with . _ - between them",
            ),
            "slots": (set(self.slots) <= set(known), f"names out of {', '.join(known)}"),
            "mean": (self.mean is None or len(self.mean) == channels, per_channel),
            "std": (self.std is None or len(self.std) == channels, per_channel),
            "shift": (self.shift == 0 or images, "0 with samples that are no images"),
            "flip": (not self.flip or images, "false with samples that are no images"),
            "instance": (
                not impaired_parameters(self.instance, host),
                f"{' and '.join(variable_parameters(host))} alone",
            ),
        }


_DIGITS_HOST = CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
_DIGITS = TaskSpec(
    name="digits",
    question="how much does growing add to a small host on 8x8 digits?",
    dataset="digits",
    host=_DIGITS_HOST,
    slots=("r0c0", "r0c1", "r1c0"),
    instance=InstanceSpec(
        width=(0.25, 1.0),
        data_share=(0.2, 1.0),
        label_noise=(0.0, 0.2),
        classes=(4, 10),
        reach=(0, 1),
        param_price=(0.005, 0.5),
    ),
    scale=16.0,
    mean=(0.3053,),
    std=(0.3760,),
    shift=1,
    param_budget=100,
    # All ops and blueprints, a seed in every slot. Groups of four envs play the same world. The
    # first rounds imitate the rules, which grow one seed at a time: a fresh policy grows and keeps,
    # and would see first that most of it costs too much. Kernels of this size gain nothing from a
    # second thread.
    defaults=read_defaults(__file__, "digits"),
)
_TINY = replace(
    _DIGITS,
    name="tiny",
    question="does a run work, on a few digits, in seconds?",
    host=replace(_DIGITS_HOST, kernel=1),
    slots=("r0c0", "r1c0"),
    instance=InstanceSpec(
        width=(0.5, 1.0), label_noise=(0.0, 0.3), reach=(1, 1), param_price=(0.05, 1.0)
    ),
    batch=4,
    minibatches=1,
    episode_length=8,
    lr=0.1,
    success=50.0,
    shift=0,
    val_samples=10,
    param_budget=300,
    # few choices: slots move up by themselves
    defaults=read_defaults(__file__, "tiny"),
)
_TASKS = (
    _DIGITS,
    replace(
        _DIGITS,
        name="digits_impaired",
        question="can seeds rescue a host that hardly sees the digits?",
        host=replace(_DIGITS_HOST, base=2, kernel=1),
        instance=replace(_DIGITS.instance, reach=(0, 0), param_price=(0.03, 0.3)),
        success=80.0,
        param_budget=None,
    ),
    _TINY,
)
TASKS: Registry[TaskSpec] = Registry(
    "task",
    setting="task",
    group="morphogen.tasks",
    expected="a TaskSpec",
    is_part=lambda part: isinstance(part, TaskSpec),
    core={task.name: task for task in _TASKS},
)
DEFAULT_PRESET = "digits_regimes" if "digits_regimes" in TASKS else DEFAULT_TASK
_SMOKE: Settings = {
    "task": "digits",
    "rounds": 2,
    "envs": 4,
    "episode_length": 8,
    "final_episodes": 4,
    "data": {"minibatches": 2, "batch": 16, "val_samples": 64},
    "ppo": {"minibatches": 2, "imitation_rounds": 1},
    "policy": {"hidden": 16},
    "checkpoint": {"every_rounds": 1},
}
PRESETS: Registry[Settings] = Registry(
    "preset",
    setting="preset",
    group="morphogen.presets",
    expected="settings in the form of a config file",
    is_part=lambda part: isinstance(part, dict),
    # the defaults of each task
    core={name: {"task": name} for name in TASKS.builtin()} | {"smoke": _SMOKE},
)
