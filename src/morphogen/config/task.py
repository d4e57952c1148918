"""Tasks: what is learned, by which host, with which slots and numbers.  Data and networks are made elsewhere."""

from dataclasses import dataclass, replace

from morphogen.config.instance_spec import InstanceSpec
from morphogen.errors import ConfigError
from morphogen.vocab.slot import CnnSpec

CLASSIFICATION, ANALYTIC = "classification", "analytic"  # what is measured: networks, or a formula


@dataclass(frozen=True)
class TaskSpec:
    """One row of the task table.  Settings named `data.*`, `host.*`, ... in a config replace these defaults."""

    name: str
    question: str  # the question the task asks, one line
    dataset: str  # digits, cifar
    host: CnnSpec
    slots: tuple[str, ...]  # enabled by default
    instance: InstanceSpec  # every range set
    batch: int  # samples per minibatch and env
    minibatches: int  # per epoch
    episode_length: int  # epochs
    lr: float  # of the host
    seed_lr: float  # of the seeds
    success: float  # accuracy in percent from which an episode counts as a success
    target_loss: float  # loss at which learning counts as complete, nats
    scale: float  # a stored byte is divided by this
    mean: tuple[float, ...]  # per input channel, after division
    std: tuple[float, ...]
    shift: int  # augmentation: shift by at most so many pixels
    flip: bool  # augmentation: mirror half of the samples
    val_samples: int | None  # validation samples per epoch; None = all
    plateau_threshold: float = 0.5  # points of rolling accuracy below which a round changed nothing
    improvement_threshold: float = 2.0  # points from which one made a difference
    param_budget: int | None = None  # parameters that param_price is the price of; None = a fully grown network
    topology: str = "cnn"
    kind: str = CLASSIFICATION


_DIGITS = TaskSpec(
    name="digits",
    question="how much does growing add to a small host on 8x8 digits?",
    dataset="digits",
    host=CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10),
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
)
_CIFAR = TaskSpec(
    name="cifar_baseline",
    question="can seeds add to a capable host?",
    dataset="cifar",
    host=CnnSpec(base=8, blocks=3, kernel=3, pools=3, channels_in=3, size=32, classes=10),
    slots=("r0c0", "r0c1", "r0c2"),
    instance=InstanceSpec(
        width=(1.0, 1.0),
        data_share=(0.5, 1.0),
        label_noise=(0.0, 0.1),
        classes=(10, 10),
        reach=(1, 1),
        param_price=(0.03, 0.3),
    ),
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
)
_WHITEBOX = TaskSpec(
    name="whitebox",
    question="does the policy find out when, where and which growth pays, where the best policy is known?",
    dataset="digits",
    host=CnnSpec(base=4, blocks=2, kernel=1, pools=1, channels_in=1, size=8, classes=10),
    slots=("r0c0", "r1c0"),
    instance=InstanceSpec(
        width=(0.5, 1.0),
        data_share=(1.0, 1.0),
        label_noise=(0.0, 0.3),
        classes=(10, 10),
        reach=(1, 1),
        param_price=(0.05, 1.0),
    ),
    batch=1,
    minibatches=1,
    episode_length=8,
    lr=0.1,
    seed_lr=0.1,
    success=50.0,
    target_loss=0.05,
    scale=16.0,
    mean=(0.3053,),
    std=(0.3760,),
    shift=0,
    flip=False,
    val_samples=1,
    param_budget=300,
    kind=ANALYTIC,
)


def _cifar_task(name: str, question: str, slots: tuple[str, ...], **host: int) -> TaskSpec:
    return replace(_CIFAR, name=name, question=question, slots=slots, host=replace(_CIFAR.host, **host))


def _row_slots(row: int, count: int) -> tuple[str, ...]:
    return tuple(f"r{row}c{col}" for col in range(count))


_DEEP_HOST = {"blocks": 5, "pools": 5}
_WHICH_SLOT = "which place in the host is the best?"
_MANY_SLOTS = "what does a controller do with many slots?"
_TASKS = (
    _DIGITS,
    replace(
        _DIGITS,
        name="digits_impaired",
        question="can seeds rescue a host that hardly sees the digits?",
        host=replace(_DIGITS.host, base=2, kernel=1),
        instance=replace(_DIGITS.instance, reach=(0, 0), param_price=(0.03, 0.3)),
        success=80.0,
        param_budget=None,
    ),
    _WHITEBOX,
    _CIFAR,
    _cifar_task("cifar_scale", "can seeds add to a deep host?", _row_slots(0, 5), **_DEEP_HOST),
    _cifar_task(
        "cifar_impaired", "can seeds rescue a host that sees almost nothing?", _row_slots(0, 3), base=1, kernel=1
    ),
    _cifar_task(
        "cifar_minimal", "can seeds rescue a host without pooling?", _row_slots(0, 3), base=2, kernel=1, pools=0
    ),
    _cifar_task("cifar_multichannel", _WHICH_SLOT, _row_slots(0, 3) + _row_slots(1, 3)),
    _cifar_task("cifar_postpool", _WHICH_SLOT, _row_slots(1, 3), base=16),
    _cifar_task("cifar_highres", _WHICH_SLOT, _row_slots(0, 3), base=16),
    _cifar_task("cifar_deep_multichannel", _MANY_SLOTS, _row_slots(0, 5) + _row_slots(1, 5), **_DEEP_HOST),
    _cifar_task(
        "cifar_deep_impaired", _MANY_SLOTS, _row_slots(0, 5) + _row_slots(1, 5), base=2, kernel=1, **_DEEP_HOST
    ),
)
TASKS: dict[str, TaskSpec] = {task.name: task for task in _TASKS}


def find_task(name: str) -> TaskSpec:
    """The task of that name; an unknown name is a ConfigError that lists the known ones."""
    if name not in TASKS:
        raise ConfigError(f"task is {name!r}; want one of {', '.join(TASKS)}")
    return TASKS[name]
