"""Setup of a run: from a resolved config to data, networks, rule and device.  Writes no files."""

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from morphogen.config.execution_spec import (
    AMP_AUTO,
    AMP_BFLOAT16,
    AMP_FLOAT16,
    AMP_OFF,
    EngineSpec,
)
from morphogen.config.extra_settings import extra_groups
from morphogen.config.fields import raise_all
from morphogen.config.groups import RESIDENT
from morphogen.config.parts import KINDS
from morphogen.config.spec import (
    RunSpec,
    build_limits,
    find_host,
    instance_ranges,
    param_budget,
    pick_slots,
    resolve,
)
from morphogen.config.task import TASKS, TaskSpec
from morphogen.data.dataset import Dataset, open_dataset
from morphogen.data.feed import ResidentFeed
from morphogen.data.instance_process import InstanceProcess, find_process
from morphogen.device.determinism import set_determinism
from morphogen.device.malloc import keep_freed_memory, reachable_memory
from morphogen.env.part_check import build_rule, check_networks
from morphogen.env.pieces import FLOAT_BYTES, piece_size
from morphogen.env.task_kind import TaskKind
from morphogen.errors import DataError, DeviceError
from morphogen.hosts.net import Net
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.precision import FULL, Precision
from morphogen.hosts.schedule import build_schedule
from morphogen.hosts.weights import digest_weights
from morphogen.ppo.exchange import ALONE, Exchange
from morphogen.rules.rewards.protocol import Rule
from morphogen.vocab.limits import Limits
from morphogen.vocab.text import count_noun, short_repr

PRECISIONS = {
    AMP_OFF: FULL,
    AMP_BFLOAT16: Precision(torch.bfloat16),
    AMP_FLOAT16: Precision(torch.float16, scaled=True),
}
_BFLOAT16_SINCE = (8, 0)  # compute capability


@short_repr
@dataclass(frozen=True, slots=True)
class Setup:
    """The fixed parts of one run: spec, networks, limits, reward rule and data.  `build_setup`
    builds it.

    Example:
        >>> import morphogen as mg
        >>> setup = mg.make("tiny", envs=2).setup
        >>> [slot.name for slot in setup.net.slots], setup.net.host_size, setup.limits.max_seeds
        (['r0c0', 'r1c0'], 150, 1)
    """

    spec: RunSpec
    """Resolved: every field has a value."""
    task: TaskSpec
    kind: TaskKind
    process: InstanceProcess
    """Of the worlds of the envs."""
    net: Net
    limits: Limits
    budget: int
    """Parameters at the full price."""
    rule: Rule
    dataset: Dataset
    feed: ResidentFeed | None
    """None for streamed data: each vector env has a feed."""
    device: torch.device
    piece_envs: int
    """Envs that train and validate at once, see `env.pieces`."""
    most_classes: int
    """That an env can have at once."""
    exchange: Exchange = ALONE
    """With the processes that hold other envs of the run."""


def own_device(spec: EngineSpec, place: int) -> torch.device:
    """Return the device of a process; of several devices each process on a machine has one.

    place: of the process among the processes of a run on this machine; `auto` and `cuda` give each
    its own device.
    Raises: DeviceError for a missing device.
    """
    name = spec.devices[place % len(spec.devices)]
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(f"cuda:{place}" if name == "cuda" else name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        found = str(device) if place else name
        raise DeviceError(
            f"engine.devices: expected one of the {count} CUDA devices of this machine, got "
            f"{found!r}"
        )
    return device


def resolve_precision(mode: str, device: torch.device) -> Precision:
    """Return the precision behind a mode of `engine.amp`.  Raises DeviceError for float16 without a
    CUDA device.
    """
    if mode == AMP_AUTO:
        if device.type != "cuda":
            return FULL
        mode = (
            AMP_BFLOAT16
            if torch.cuda.get_device_capability(device) >= _BFLOAT16_SINCE
            else AMP_FLOAT16
        )
    if mode == AMP_FLOAT16 and device.type != "cuda":
        allowed = ", ".join((AMP_OFF, AMP_AUTO, AMP_BFLOAT16))
        raise DeviceError(
            f"engine.amp: expected one of {allowed} on {device}, got {mode!r}: float16 needs CUDA"
        )
    return PRECISIONS[mode]


def prepare_process(spec: EngineSpec, device: torch.device) -> None:
    """Set switches of the process: determinism and TF32 of a CUDA device, memory retention
    on a CPU.
    """
    set_determinism(device, deterministic=spec.deterministic, tf32=spec.tf32)
    if device.type == "cpu":
        keep_freed_memory()


def state_bytes(spec: RunSpec, net: Net) -> int:
    """Return the bytes of the parameters of all envs, with the moments of their optimiser and
    snapshots.
    """
    copies = 2 * (1 + len(net.optimizer.moments))
    return spec.envs * (net.host_size + sum(net.seed_sizes)) * copies * FLOAT_BYTES


def check_memory(spec: RunSpec, net: Net, needed: int, device: torch.device) -> None:
    """Raise DeviceError if state and activations cannot fit the device.

    Args: spec: resolved; needed: bytes of activations of an env.  A run may need more than these
    two; a system that reports no memory refuses nothing.
    """
    state = state_bytes(spec, net)
    activations = min(spec.envs, piece_size(spec, needed, device)) * needed
    if device.type == "cuda":
        limit = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    else:
        limit = reachable_memory()
    if limit is not None and state + activations > limit:
        raise DeviceError(
            f"envs: {spec.envs:,} need {(state + activations) / 2**30:,.1f} GiB on {device} "
            f"(state {state / 2**30:,.1f}, activations {activations / 2**30:,.1f}), at most "
            f"{limit / 2**30:,.1f} GiB "
            "can be had: lower envs or engine.activation_mib"
        )


def check_classes(spec: RunSpec, labels: Tensor, fewest: int) -> None:
    """Raise DataError if all classes that an env may draw could be without a training sample.

    Args: spec: resolved; labels: int64 [N], of the training split; fewest: classes of an env.
    """
    classes = find_host(spec).classes
    absent = int((labels.bincount(minlength=classes) == 0).sum())
    if absent >= fewest:
        raise DataError(
            f"{spec.data.name}: train: expected samples of more classes, as an env may have "
            f"{fewest} of the {classes} "
            f"classes of the host, got none of {absent}: choose a host with fewer classes, "
            "or set instance.classes"
        )


def build_setup(spec: RunSpec, exchange: Exchange = ALONE) -> Setup:
    """Open the data and lay out the networks of a run; sets the process up for its device
    (`prepare_process`).

    Args:
        spec: resolved or not.
        exchange: with the processes that hold other envs of the run.

    Raises: ConfigError for parts that cannot be built or have another form than they declare,
    DataError for missing files or classes without samples, DeviceError for a missing device, one
    without the memory for the run, or a precision that it does not support.

    Example:
        >>> import morphogen as mg
        >>> setup = mg.build_setup(mg.RunSpec(task="tiny", envs=4))
        >>> setup.rule.components, setup.budget
        (('value', 'shaping', 'rent', 'op_cost', 'governor'), 300)
    """
    spec = resolve(spec)
    device = own_device(spec.engine, exchange.place)
    precision = resolve_precision(spec.engine.amp, device)
    prepare_process(spec.engine, device)
    task = TASKS[spec.task]
    limits = build_limits(spec)
    kind = KINDS[task.kind]
    process = find_process(spec)
    raise_all(kind.faults(spec))
    budget = param_budget(spec)
    host = find_host(spec)
    dataset = open_dataset(task, spec.data, host, device)
    ranges = process.class_ranges(instance_ranges(spec).classes)
    fewest = min(low for low, _ in ranges)
    net = Net(
        host=host,
        slots=pick_slots(spec),
        kinds=limits.kinds,
        precision=precision,
        weights=spec.host.weights,
        optimizer=OPTIMIZERS[spec.host.optimizer],
        schedule=build_schedule(spec.host, spec.data.minibatches, spec.episode_length),
        freeze=spec.host.freeze,
        criterion=dataset.criterion,
        all_classes=fewest >= host.classes,
    )
    check_networks(spec, net)
    if net.weights:  # a run resumes with the same files
        both = f"{dataset.fingerprint}{digest_weights(net.weights)}".encode()
        dataset = replace(dataset, fingerprint=hashlib.sha256(both).hexdigest())
    needed = kind.activation_bytes(spec, net, dataset.sizes["validation"])
    check_memory(spec, net, needed, device)
    if host.labelled and dataset.criterion.labelled:
        check_classes(spec, dataset.labels, fewest)
    feed = None
    if dataset.placement == RESIDENT:
        feed = ResidentFeed(dataset, spec)
    return Setup(
        spec=spec,
        task=task,
        kind=kind,
        process=process,
        net=net,
        limits=limits,
        budget=budget,
        rule=build_rule(
            spec.reward,
            param_budget=budget,
            episode_length=spec.episode_length,
            gamma=spec.ppo.gamma,
        ),
        dataset=dataset,
        feed=feed,
        device=device,
        piece_envs=piece_size(spec, needed, device),
        most_classes=max(high for _, high in ranges),
        exchange=exchange,
    )


def describe_run(setup: Setup) -> dict[str, str]:
    """Describe the size of a run: name -> text, in print order."""
    spec = setup.spec
    net = setup.net
    split = setup.dataset.sizes
    epochs = count_noun(int(spec.episode_length or 0), "epoch")
    rows = {"task": f"{spec.task} ({setup.task.question})", "policy": spec.policy_name}
    groups = extra_groups(spec).items()
    rows |= {name: repr(group) for name, group in groups if group != type(group)()}
    return {
        **rows,
        "reward": spec.reward.rule,
        "device": str(setup.device),
        "precision": net.precision.label,
        "data": f"{split['train']:,} train, {split['validation']:,} validation, {split['test']:,} "
        "test samples",
        "training data": setup.dataset.placement,
        "run": f"{count_noun(spec.rounds, 'round')} of {epochs} with "
        f"{count_noun(spec.envs, 'env')}",
        "life of a host": f"{spec.episode_length * spec.data.minibatches:,} minibatches of "
        f"{spec.data.batch:,} samples",
        "host": f"{net.host_size:,} parameters",
        "slots": ", ".join(f"{slot.name} ({slot.channels} channels)" for slot in net.slots),
        "parameter budget": f"{setup.budget:,}",
        "state of all envs": f"{state_bytes(spec, net) / 2**20:,.1f} MiB",
        "envs at once": f"{min(spec.envs, setup.piece_envs):,} in training and validation",
    }
