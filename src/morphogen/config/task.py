"""Tasks: data, host, slots and numbers of a run; and presets, named variations on the defaults of a task."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from morphogen.config.fields import Settings, raise_all
from morphogen.config.groups import LifecycleSpec
from morphogen.config.instance_spec import InstanceSpec, impaired_parameters, reference_instance, variable_parameters
from morphogen.config.parts import BUILT_IN, DATASETS, HOSTS
from morphogen.config.task_defaults import (
    DIGITS_DEFAULTS,
    HIGH_ENTROPY,
    PHASES_DEFAULTS,
    PYDOC_DEFAULTS,
    SMALL_STEPS,
    TINYSTORIES_DEFAULTS,
    WHITEBOX_DEFAULTS,
    WHITEBOX_PHASES_DEFAULTS,
)
from morphogen.vocab.action import TEMPO_EPOCHS, Tempo
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.host import CnnSpec, Host
from morphogen.vocab.objective import ANYTIME, DELIVERED, OBJECTIVES
from morphogen.vocab.plain import make_plain
from morphogen.vocab.registry import NAME, Registry
from morphogen.vocab.stage import Gate
from morphogen.vocab.text import format_value, suggest
from morphogen.vocab.transformer_host import TransformerSpec

DEFAULT_TASK = "digits"
CLASSIFICATION = "classification"  # labels
NEXT_TOKEN = "next_token"  # tokens
ANALYTIC = "analytic"  # a formula


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task: data, host, slots and numbers.  Settings named `data.*`, `host.*`, ... in a config replace these.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> host = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
        >>> task = mg.TaskSpec(name="small", dataset="digits", host=host, slots=("r0c0",), batch=16)
        >>> mg.make(task, envs=2).spec.task
        'small'
    """

    name: str
    dataset: str | Callable[..., Any]
    """Name in `DATASETS`, or the data set itself."""
    host: str | Host
    """Name in `HOSTS`, or the host itself."""
    question: str = "a task from outside"
    """The question the task asks, one line."""
    slots: tuple[str, ...] = ()
    """Enabled by default; () = all of the host."""
    instance: InstanceSpec = field(default=InstanceSpec())
    """None in it = nothing impaired."""
    batch: int = 32
    """Samples per minibatch and env."""
    minibatches: int = 16
    """Per epoch."""
    episode_length: int = 16
    """Epochs."""
    lr: float = 0.05
    """Of the host."""
    seed_lr: float = 0.1
    """Of the seeds."""
    success: float = 95.0
    """Accuracy in percent from which an episode counts as a success."""
    target_loss: float = 0.05
    """Loss at which learning counts as complete, nats."""
    scale: float = 1.0
    """A stored number is divided by this."""
    mean: tuple[float, ...] | None = None
    """Per input channel, after division; None = of the training split."""
    std: tuple[float, ...] | None = None
    shift: int = 0
    """Augmentation of images: largest shift, pixels."""
    flip: bool = False
    """Augmentation of images: mirror half of the samples."""
    val_samples: int | None = None
    """Validation samples per epoch; None = all."""
    plateau_threshold: float = 0.5
    """Points of rolling accuracy below which a round changed nothing."""
    improvement_threshold: float = 2.0
    """Points from which one made a difference."""
    param_budget: int | None = None
    """Parameters that param_price is the price of; None = a fully grown network."""
    kind: str = CLASSIFICATION
    objective: str = DELIVERED
    """Whose value counts: delivered (the last network), anytime (that in use, every epoch)."""
    defaults: Settings = field(default_factory=dict[str, Any], hash=False)
    """Of the run, in the form of a config file."""

    def __post_init__(self) -> None:
        make_plain(self)
        for name, registry in (("dataset", DATASETS), ("host", HOSTS)):
            if isinstance(value := getattr(self, name), str) and value not in registry:
                known = f"one of {', '.join(registry)}" if registry else f"an object (no {registry.kind} is registered)"
                raise_all([f"task {self.name}: {name}: expected {known}, got {value!a}{suggest(value, registry)}"])
        host = HOSTS[self.host] if isinstance(self.host, str) else self.host
        raise_all(self._faults(host))
        reference = reference_instance(host.classes, host.reach)
        ranges = {name: span for name, span in vars(self.instance).items() if span is not None}
        derived = {
            "dataset": DATASETS.adopt(self.dataset),
            "host": host,
            "slots": self.slots or tuple(slot.name for slot in host.all_slots),
            "instance": replace(reference, **ranges),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def value_name(self) -> str:
        """Name of the value of an episode: `network value`, or `anytime value`."""
        return OBJECTIVES[self.objective]

    def _faults(self, host: Any) -> list[str]:
        """Describe invalid fields, a line each."""
        if not isinstance(host, Host):
            return [f"task {self.name}: host: expected an object of a class that derives from Host, got {host!a:.60}"]
        known = [slot.name for slot in host.all_slots]
        images = len(host.input_shape) == 3
        channels = host.input_shape[0]
        counts = ("batch", "minibatches", "episode_length")
        given = {"mean": self.mean, "std": self.std}
        variable = " and ".join(variable_parameters(host))
        checks = {
            "name": (bool(NAME.fullmatch(self.name)), "letters and digits, with . _ - between them"),
            "dataset": (isinstance(self.dataset, str) or callable(self.dataset), "a data set or its name"),
            "slots": (set(self.slots) <= set(known), f"names out of {', '.join(known)}"),
            **{
                name: (type(getattr(self, name)) is int and getattr(self, name) >= 1, "an integer >= 1")
                for name in counts
            },
            **{
                name: (values is None or len(values) == channels, f"{channels} numbers, one per input channel")
                for name, values in given.items()
            },
            "shift": (self.shift == 0 or images, "0 with samples that are no images"),
            "flip": (not self.flip or images, "false with samples that are no images"),
            "objective": (self.objective in OBJECTIVES, f"one of {', '.join(OBJECTIVES)}"),
            "instance": (not impaired_parameters(self.instance, host), f"{variable} alone"),
        }
        return [
            f"task {self.name}: {name}: expected {allowed}, got {format_value(getattr(self, name))}"
            for name, (ok, allowed) in checks.items()
            if not ok
        ]


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
    batch=32,
    minibatches=16,
    episode_length=16,
    lr=0.05,
    seed_lr=0.1,
    success=95.0,
    target_loss=0.05,
    scale=16.0,
    mean=(0.3053,),
    std=(0.3760,),
    shift=1,
    flip=False,
    val_samples=None,
    param_budget=100,
    defaults=DIGITS_DEFAULTS,
)
_CIFAR_HOST = CnnSpec(base=8, blocks=3, kernel=3, pools=3, channels_in=3, size=32, classes=10)
_CIFAR = TaskSpec(
    name="cifar_baseline",
    question="can seeds add to a capable host?",
    dataset="cifar",
    host=_CIFAR_HOST,
    slots=("r0c0", "r0c1", "r0c2"),
    instance=InstanceSpec(data_share=(0.5, 1.0), label_noise=(0.0, 0.1), param_price=(0.03, 0.3)),
    batch=128,
    minibatches=32,
    episode_length=150,
    lr=0.01,
    seed_lr=0.01,
    success=80.0,
    target_loss=0.3,
    scale=255.0,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    shift=4,
    flip=True,
    val_samples=2000,
    plateau_threshold=0.4,
    defaults=HIGH_ENTROPY,
)
_WHITEBOX = replace(
    _DIGITS,
    name="whitebox",
    question="does the policy find out when, where and which growth pays, where the best policy is known?",
    host=replace(_DIGITS_HOST, kernel=1),
    slots=("r0c0", "r1c0"),
    instance=InstanceSpec(width=(0.5, 1.0), label_noise=(0.0, 0.3), reach=(1, 1), param_price=(0.05, 1.0)),
    batch=1,
    minibatches=1,
    episode_length=8,
    lr=0.1,
    seed_lr=0.1,
    success=50.0,
    shift=0,
    val_samples=1,
    param_budget=300,
    kind=ANALYTIC,
    defaults=WHITEBOX_DEFAULTS,
)


def _cifar_task(name: str, question: str, slots: tuple[str, ...], defaults: Settings, **host: int) -> TaskSpec:
    host_spec = replace(_CIFAR_HOST, **host)
    return replace(_CIFAR, name=name, question=question, slots=slots, host=host_spec, defaults=defaults)


_DEEP_HOST = {"blocks": 5, "pools": 5}
_ROW_0, _ROW_1 = (tuple(f"r{row}c{col}" for col in range(5)) for row in range(2))
_SCALE: Settings = {"rounds": 100, "ppo": {"entropy_coef": 0.08}, "telemetry": {"plateau_threshold": 0.35}}
_SCALE["engine"] = {"amp": "auto"}
_THREE_SEEDS = {"max_seeds": 3, **SMALL_STEPS}
_SIX_SEEDS = {"max_seeds": 6, **SMALL_STEPS}
_WHICH_SLOT = "which place in the host is the best?"
_MANY_SLOTS = "how does a controller use many slots?"
_IMPAIRED = "can seeds rescue a host that sees almost nothing?"
_UNPOOLED = "can seeds rescue a host without pooling?"
_LANGUAGE: dict[str, Any] = {"plateau_threshold": 0.3, "improvement_threshold": 1.5, "kind": NEXT_TOKEN}
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
    replace(
        _DIGITS,
        name="digits_phases",
        question="does it pay to look, where what a host needs is not told and changes, and size costs as it lives?",
        host=replace(_DIGITS_HOST, base=8, blocks=3, kernel=1, pools=2),
        instance=InstanceSpec(param_price=(0.15, 0.185)),
        batch=16,
        episode_length=90,
        success=70.0,
        objective=ANYTIME,
        defaults=PHASES_DEFAULTS,
    ),
    _WHITEBOX,
    replace(
        _WHITEBOX,
        name="whitebox_phases",
        question="does the policy see that its world has changed, where the best policy is known?",
        instance=InstanceSpec(param_price=(0.05, 1.0)),
        episode_length=32,
        success=80.0,
        objective=ANYTIME,
        defaults=WHITEBOX_PHASES_DEFAULTS,
    ),
    _CIFAR,
    _cifar_task("cifar_scale", "can seeds add to a deep host?", _ROW_0, _SCALE, **_DEEP_HOST),
    _cifar_task("cifar_impaired", _IMPAIRED, _ROW_0[:3], HIGH_ENTROPY, base=1, kernel=1),
    _cifar_task("cifar_minimal", _UNPOOLED, _ROW_0[:3], HIGH_ENTROPY, base=2, kernel=1, pools=0),
    _cifar_task("cifar_multichannel", _WHICH_SLOT, _ROW_0[:3] + _ROW_1[:3], _THREE_SEEDS),
    _cifar_task("cifar_postpool", _WHICH_SLOT, _ROW_1[:3], _THREE_SEEDS, base=16),
    _cifar_task("cifar_highres", _WHICH_SLOT, _ROW_0[:3], _THREE_SEEDS, base=16),
    _cifar_task("cifar_deep_multichannel", _MANY_SLOTS, _ROW_0 + _ROW_1, _SIX_SEEDS, **_DEEP_HOST),
    _cifar_task("cifar_deep_impaired", _MANY_SLOTS, _ROW_0 + _ROW_1, _SIX_SEEDS, base=2, kernel=1, **_DEEP_HOST),
    TaskSpec(
        name="tinystories",
        question="can seeds add to a language model of stories?",
        dataset="tinystories",
        host=TransformerSpec(vocabulary=257, width=384, heads=6, layers=6, block=256, dropout=0.1),
        success=60.0,
        target_loss=3.5,
        val_samples=512,
        episode_length=150,
        minibatches=32,
        lr=0.1,
        instance=InstanceSpec(param_price=(0.03, 0.3)),
        defaults=TINYSTORIES_DEFAULTS,
        **_LANGUAGE,
    ),
    TaskSpec(
        name="pydoc",
        question="which language models of documentation lack attention, and is it worth its price?",
        dataset="pydoc",
        host=TransformerSpec(vocabulary=97, width=24, heads=4, layers=3, block=32, reach=31),
        success=40.0,
        target_loss=2.0,
        val_samples=256,
        param_budget=25_000,
        defaults=PYDOC_DEFAULTS,
        batch=8,
        minibatches=94,
        lr=0.04,
        seed_lr=0.12,
        instance=InstanceSpec(reach=(0, 1), param_price=(0.03, 0.3)),
        **_LANGUAGE,
    ),
)
TASKS: Registry[TaskSpec] = Registry(
    "task",
    setting="task",
    group="morphogen.tasks",
    expected="a TaskSpec",
    is_part=lambda part: isinstance(part, TaskSpec),
)
for _task in _TASKS:
    TASKS.register(_task.name, _task, origin=BUILT_IN)
DEFAULT_PRESET = "digits_phases"
PRESETS: dict[str, Settings] = {
    **{name: {"task": name} for name in TASKS.builtin()},  # the defaults of the task
    "smoke": {
        "task": "digits",
        "rounds": 2,
        "envs": 4,
        "episode_length": 8,
        "final_episodes": 4,
        "data": {"minibatches": 2, "batch": 16, "val_samples": 64},
        "ppo": {"minibatches": 2, "imitation_rounds": 1},
        "policy": {"hidden": 16},
        "checkpoint": {"every_rounds": 1},
    },
    "cifar_baseline_stable": {
        "task": "cifar_baseline",
        "rounds": 200,
        "ppo": {"clip": 0.1, "entropy_coef": 0.06, "entropy_coef_end": 0.03, "entropy_anneal_rounds": 50},
    },
}
BASE_POINTS = 20.0  # points of a host alone
GAIN_POINTS = 60.0  # that the right blueprint adds at full alpha, if it was germinated as soon as its host was ripe
DELAY_PENALTY = 0.05  # share of it that is lost per epoch of delay
MATURITY_EPOCHS = 10  # epochs until a host is ripe, per label noise of 1
# The right blueprint for hosts up to a width; they differ in size, so that one price does not suit all.
BEST_BLUEPRINT: tuple[tuple[float, Blueprint], ...] = (
    (0.5, Blueprint.CONV_LIGHT),
    (0.75, Blueprint.CONV_HEAVY),
    (1.0, Blueprint.BOTTLENECK),
)


# With phases: the view of a phase alone decides; a seed counts from full alpha on, whenever it was germinated.
VIEW_BLUEPRINTS: tuple[Blueprint, ...] = (Blueprint.CONV_LIGHT, Blueprint.DEPTHWISE, Blueprint.CONV_HEAVY)
VIEW_POINTS = 5.0  # points of a host alone, for each step of the code of a view: it can be recognised


def epochs_to_fossilize(spec: LifecycleSpec) -> int:
    """Epochs from germination to fossilization at the fastest, where gates are permissive."""
    by_hand = [int(gate.name not in spec.auto_forward) for gate in (Gate.TRAIN, Gate.HOLD)]
    blends = by_hand[0] + max(1, spec.min_training_epochs)
    holds = blends + TEMPO_EPOCHS[Tempo.FAST] - 1 + by_hand[1]  # a ramp moves in the epoch in which it begins
    return holds + 1
