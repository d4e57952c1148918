"""Tasks: data, host, slots and numbers of a run; and presets, named variations on the defaults of a
task.  The tasks of the package are in `tasks.json`, its presets in `presets.json`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from morphogen.config.fields import (
    DERIVED,
    UNSET,
    Checks,
    Count,
    Names,
    Natural,
    NonNegative,
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
from morphogen.config.parts import (
    DATASETS,
    FILE_POLICIES,
    HOSTS,
    KINDS,
    LOSSES,
    POLICIES,
    SCORES,
)
from morphogen.config.registry import NAME, Registry
from morphogen.vocab.objective import ACCURACY, CROSS_ENTROPY, DELIVERED, OBJECTIVES

DEFAULT_TASK = "digits"
_Numbers = Annotated[tuple[float, ...], Field(strict=False)]  # a list is one too


def _find_host(value: Any) -> Host:
    """Return a host, or the host of a name in `HOSTS`."""
    host = HOSTS.get(value) if isinstance(value, str) else value
    if not isinstance(host, Host):
        raise ValueError(" or ".join([*HOSTS, "an object of a class that derives from Host"]))
    return host


@spec
class TaskSpec(Spec):
    """A task: data, host, slots, and the settings of its runs.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> host = mg.CnnSpec(
        ...     base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10
        ... )
        >>> task = mg.TaskSpec(
        ...     name="small", dataset="digits", host=host, defaults={"data": {"batch": 16}}
        ... )
        >>> mg.make(task, envs=2).spec.task
        'small'
    """

    PATH: ClassVar[str] = "task"
    IS_PART: ClassVar[bool] = True

    name: str
    dataset: Annotated[str | Callable[..., Any], OneOf(DATASETS)]
    """Name in `DATASETS`, or the data set itself."""
    host: Annotated[str | Host, PlainValidator(_find_host)]
    """Name in `HOSTS`, or the host itself."""
    question: str = "a task from outside"
    """The question the task asks, one line."""
    figures: str = ""
    """Figures of growing in it, one line."""
    slots: Annotated[tuple[str, ...], Names()] = ()
    """Enabled by default; () = all of the host."""
    instance: InstanceSpec = InstanceSpec()
    """None in it = nothing impaired."""
    success: NonNegative = 95.0
    """Score in percent from which an episode counts as a success."""
    target_loss: NonNegative = 0.05
    """Loss at which learning counts as complete."""
    scale: Positive = 1.0
    """A stored number is divided by this."""
    mean: _Numbers | None = None
    """Per input channel, after division; None = of the training split."""
    std: _Numbers | None = None
    shift: Natural = 0
    """Augmentation of images: largest shift, pixels."""
    flip: bool = False
    """Augmentation of images: mirror half of the samples."""
    param_budget: Count | None = None
    """Parameters that param_price is the price of; None = a fully grown network."""
    kind: Annotated[str, OneOf(KINDS)] = "networks"
    """Kind of training and validation: name in `KINDS`, or the kind itself."""
    objective: Literal["delivered", "anytime"] = DELIVERED
    """Network whose value counts: delivered (the last), anytime (the present one, every epoch)."""
    loss: Annotated[str | Callable[..., Any], OneOf(LOSSES)] = CROSS_ENTROPY
    """Loss that networks minimise: name in `LOSSES`, or a function (output, target) -> [B]."""
    score: Annotated[str | Callable[..., Any], OneOf(SCORES), DERIVED] = UNSET
    """Score in 0 .. 1, higher is better: name in `SCORES`, or a function (output, target) -> [B];
    None = the usual one of the loss.
    """
    rivals: Annotated[tuple[str, ...], Names()] = ()
    """Policies that the final evaluation plays besides the usual rivals, where a run can."""
    defaults: Settings = field(default_factory=dict[str, Any], hash=False)
    """Of the run, in the form of a config file."""

    def __post_init__(self) -> None:
        if isinstance(self.host, Host):
            object.__setattr__(self, "host", self.host.for_data(self.dataset))
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

    @property
    def score_name(self) -> str:
        """Name of the score, as tables and messages have it; "" for a loss without a usual one."""
        if self.score is None and self.loss == CROSS_ENTROPY:
            return ACCURACY
        return str(self.score or getattr(LOSSES[str(self.loss)], "usual_score", ""))

    @property
    def labelled(self) -> bool:
        """True if the targets are class labels, among which instances choose."""
        return self.loss == CROSS_ENTROPY or self.score == ACCURACY

    def cross_checks(self) -> Checks:
        """Slots, channels, augmentation and ranges of instances fit the host."""
        host = self.host
        assert isinstance(host, Host)
        known = [slot.name for slot in host.all_slots]
        images = len(host.input_shape) == 3
        channels = host.input_shape[0]
        policies = (*POLICIES, *FILE_POLICIES) if self.rivals else ()
        unknown = {name.partition(":")[0] for name in self.rivals} - {*policies}
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
                not impaired_parameters(self.instance, host, self.labelled),
                f"{' and '.join(variable_parameters(host, self.labelled))} alone",
            ),
            "rivals": (not unknown, f"names out of {', '.join(policies)}"),
            "score": (
                self.score_name,
                f"one of {', '.join(SCORES)}, or a function, with the loss {self.loss}",
            ),
        }


def read_table(module: str, name: str) -> Settings:
    """Return the JSON object in a file of the folder of a module.  module: its path, `__file__`."""
    return json.loads(Path(module).with_name(name).read_bytes())


def read_tasks(
    module: str, host: Callable[..., Host], base: Mapping[str, TaskSpec] | None = None
) -> SimpleNamespace:
    """Return the tasks of the file `tasks.json` in the folder of a module, by name.

    A task that is `like` another has its fields, except those that it states itself.

    Args:
        module: path of the module, `__file__`.
        host: class of the hosts.
        base: tasks of other files, which a task may be like.
    """
    tasks: dict[str, TaskSpec] = {}
    for name, fields in read_table(module, "tasks.json").items():
        like = fields.pop("like", None)
        if "host" in fields:
            fields["host"] = host(**fields["host"])
        if like is None:
            tasks[name] = TaskSpec(name=name, **fields)
        else:
            tasks[name] = replace(tasks.get(like) or (base or {})[like], name=name, **fields)
    return SimpleNamespace(**tasks)


# digits: all ops and blueprints, a seed in every slot.  Groups of four envs play the same world.
# The first rounds imitate the rules, which grow one seed at a time: a fresh policy grows and keeps,
# and would see first that most of it costs too much.  Kernels of this size gain nothing from a
# second thread.  tiny: few choices, because slots move up by themselves.
TASKS: Registry[TaskSpec] = Registry(
    "task",
    setting="task",
    group="morphogen.tasks",
    expected="a TaskSpec",
    is_part=lambda part: isinstance(part, TaskSpec),
    core=vars(read_tasks(__file__, CnnSpec)),
)
DEFAULT_PRESET = "fashion" if "fashion" in TASKS else DEFAULT_TASK
PRESETS: Registry[Settings] = Registry(
    "preset",
    setting="preset",
    group="morphogen.presets",
    expected="settings in the form of a config file",
    is_part=lambda part: isinstance(part, dict),
    # the defaults of each task
    core={name: {"task": name} for name in TASKS.builtin()} | read_table(__file__, "presets.json"),
)
