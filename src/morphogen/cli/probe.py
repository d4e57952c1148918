"""Measurements of `morphogen bench`, made in a child process: rounds of a configuration, forms of
its convolutions.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from morphogen import kernels
from morphogen.cli.bench import Measure, machine_facts, median_measure
from morphogen.config.host import CnnSpec
from morphogen.config.spec import RunSpec, blueprint_kinds, find_host, pick_slots
from morphogen.device.cuda_memory import device_name
from morphogen.device.malloc import keep_freed_memory, process_memory
from morphogen.env.setup import build_setup, resolve_device
from morphogen.errors import ConfigError, DeviceError
from morphogen.hosts.net import Net
from morphogen.kernels.conv import stacked_conv
from morphogen.log.events import Envelope
from morphogen.log.writer import MemorySink
from morphogen.train.loop import Parts, Scheduler

CONTROL_PHASES = ("head", "tail", "record_read")
MIB = 2**20
MIN_SECONDS = 0.02  # least time of the measurement of a form
RoundEvents = dict[str, Any]  # name of an event -> its data


class ProbeResult(NamedTuple):
    """Measurements of one configuration, and the machine."""

    machine: dict[str, Any]
    checksum: float  # of the computed rewards
    rows: tuple[Measure, ...]


class ConvLayer(NamedTuple):
    """A convolution of all envs."""

    name: str
    channels_in: int  # of a group
    channels: int  # output channels of an env
    size: int
    kernel: int
    depthwise: bool


def probe(spec: RunSpec) -> ProbeResult:
    """Run all rounds of a resolved spec in this process.  Raises DeviceError if the device has too
    little memory.
    """
    sink = MemorySink()
    scheduler = Scheduler(build_setup(spec), Parts(sinks=(sink,)))
    try:
        with torch.no_grad():
            rounds = scheduler.run()
        scheduler.reporter.close()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{scheduler.setup.device} has too little memory: {str(error).partition('.')[0]}"
        ) from None
    facts = machine_facts(
        device=device_name(scheduler.setup.device), threads=torch.get_num_threads()
    )
    checksum = fmean(cast("tuple[float, ...]", rounds[-1].env_reward))
    return ProbeResult(facts, checksum, measure_rows(events_by_round(sink.events)))


def events_by_round(events: Iterable[Envelope]) -> list[RoundEvents]:
    """Return the events about each round, by name."""
    rounds = defaultdict[int, RoundEvents](dict)
    for event in events:
        if event.round is not None and event.epoch is None:
            rounds[event.round][event.name] = event.data
    return [rounds[round] for round in sorted(rounds)]


def measure_rows(events: Sequence[RoundEvents]) -> tuple[Measure, ...]:
    """Return the rows of a table from the events of all rounds; the first round is the warm-up."""
    rounds = [data["RoundCompleted"] for data in events]
    pace = [data["Throughput"] for data in events]
    last = events[-1].get("MemoryUsed")
    peak = process_memory("VmHWM") if last is None else last.peak_bytes
    return (
        median_measure(
            "env_epochs_per_s", [data.env_epochs_per_s for data in pace[1:]], "env-epochs/s"
        ),
        median_measure("samples_per_s", [data.samples_per_s for data in pace[1:]], "samples/s"),
        median_measure("warm_up_env_epochs_per_s", [pace[0].env_epochs_per_s], "env-epochs/s"),
        median_measure("update_s", [data.update_s for data in pace[1:]], "s"),
        median_measure(
            "host_wait_time_share", [data.host_wait_time_share or 0.0 for data in pace[1:]], "share"
        ),
        *_phase_measures(
            [data["PhaseProfile"].phases for data in events[1:] if "PhaseProfile" in data]
        ),
        median_measure("compile_s", [sum(data.compile_s for data in pace)], "s"),
        median_measure("graphs", [sum(data.graphs for data in rounds)], "count"),
        median_measure("graph_fallbacks", [sum(data.graph_fallbacks for data in rounds)], "count"),
        median_measure("rollbacks", [sum(data.rollbacks for data in rounds[1:])], "count"),
        *(() if peak is None else (median_measure("peak_memory", [peak / MIB], "MiB"),)),
    )


def _phase_measures(profiles: Sequence[dict[str, dict[str, Any]]]) -> list[Measure]:
    """Return the share of each phase in a round, on the device clock if there is one; empty without
    profiles.
    """
    if not profiles:
        return []
    shares: list[dict[str, float]] = []
    for phases in profiles:
        seconds = {
            name: row["wall_s"] if row["device_s"] is None else row["device_s"]
            for name, row in phases.items()
        }
        shares.append({name: value / sum(seconds.values()) for name, value in seconds.items()})
    control = [sum(share[name] for name in CONTROL_PHASES) for share in shares]
    rows = [
        median_measure(f"share_{name}", [share[name] for share in shares], "share")
        for name in shares[0]
    ]
    return [median_measure("control_share", control, "share"), *rows]


def explain(spec: RunSpec) -> list[dict[str, object]]:
    """Return a row per convolution of a resolved spec: milliseconds of a training step in every
    form, the form chosen.

    Activations have their channels innermost, so the usual form pays for two changes of layout.  A
    form without a kernel has no time.
    """
    keep_freed_memory()
    device = resolve_device(spec.engine.devices[0])
    envs = spec.envs
    samples = spec.data.batch
    rows = []
    for layer in list_conv_layers(spec):
        shapes = (
            (
                samples,
                layer.size,
                layer.size,
                envs,
                layer.channels if layer.depthwise else layer.channels_in,
            ),
            (envs, layer.channels, layer.channels_in, layer.kernel, layer.kernel),
            (samples, layer.size, layer.size, envs, layer.channels),
        )
        x, weight, grad = (
            torch.linspace(-1.0, 1.0, math.prod(shape), dtype=torch.float32, device=device).view(
                shape
            )
            for shape in shapes
        )
        chosen = kernels.form_of("conv", x, weight)
        forms = [form for form in kernels.Form if form is not kernels.Form.KERNEL or form is chosen]
        times = {form: measure_milliseconds(x, weight, grad, form) for form in forms}
        shape = (
            f"{layer.kernel}x{layer.kernel}, {layer.channels_in} -> {layer.channels}, "
            f"{layer.size}x{layer.size}"
        )
        columns = {f"{form.value} ms": times.get(form) for form in kernels.Form}
        rows.append({"convolution": layer.name, "shape": shape, **columns, "chosen": chosen.value})
    return rows


def list_conv_layers(spec: RunSpec) -> list[ConvLayer]:
    """Return the convolutions of hosts and seeds, each shape once, named by its first occurrence.

    Raises: ConfigError for a host that is no CNN of the package.
    """
    net = Net(find_host(spec), pick_slots(spec), blueprint_kinds(spec))
    if not isinstance(net.host, CnnSpec):
        raise ConfigError(f"--explain: expected a CNN host, got {type(net.host).__name__}")
    sizes = {slot.place[1]: slot.size[0] for slot in reversed(net.host.all_slots)}
    convolutions = [leaf for leaf in net.host_layout.leaves if len(leaf.shape) == 4]
    leaves = [(f"host, {leaf.name}", leaf, sizes[block]) for block, leaf in enumerate(convolutions)]
    leaves += [
        (f"{slot.name}, {module.name}.{leaf.name}", leaf, slot.size[0])
        for slot, module in itertools.product(net.slots, net.modules.values())
        for leaf in module.leaves(slot.channels)
        if len(leaf.shape) == 4
    ]
    layers: dict[tuple[int, ...], ConvLayer] = {}
    for name, leaf, size in leaves:
        outputs, inputs, _, kernel = leaf.shape
        # a host's images may have a single channel
        depthwise = inputs == 1 and not leaf.name.startswith("block")
        layer = ConvLayer(name, inputs, outputs, size, kernel, depthwise)
        layers.setdefault(layer[1:], layer)
    return list(layers.values())


def measure_milliseconds(x: Tensor, weight: Tensor, grad: Tensor, form: kernels.Form) -> float:
    """Return the median time of forward and backward."""
    leaves = x.requires_grad_(), weight.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(stacked_conv(*leaves, form=form), leaves, grad)

    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return 1e3 * timer.blocked_autorange(min_run_time=MIN_SECONDS).median
