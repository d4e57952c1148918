"""Forms of the convolutions of a configuration: every form measured, beside the chosen one.

Activations have their channels innermost, so the usual form pays for two changes of layout.  Where no kernel of our own
serves there is no time of one.
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from morphogen import kernels
from morphogen.config.spec import RunSpec, cnn_spec
from morphogen.device.malloc import keep_freed_memory
from morphogen.engine.setup import resolve_device
from morphogen.nets import cnn, ops
from morphogen.nets.net import ParamLeaf
from morphogen.vocab.blueprint import CNN_BLUEPRINTS

MIN_SECONDS = 0.02  # seconds that a form is measured for


class ConvLayer(NamedTuple):
    """A convolution of all envs."""

    name: str
    channels_in: int  # of a group
    channels: int  # of an env, that come out
    size: int
    kernel: int
    depthwise: bool


def explain(spec: RunSpec) -> list[dict[str, object]]:
    """A row per convolution of a resolved spec: milliseconds of a training step in every form, the form chosen."""
    keep_freed_memory()
    device = resolve_device(spec.engine.devices[0])
    return [_layer_row(layer, spec, device) for layer in list_conv_layers(spec)]


def list_conv_layers(spec: RunSpec) -> list[ConvLayer]:
    """The convolutions of hosts and seeds, each shape once, with the first place where it is met."""
    host = cnn_spec(spec)
    sizes = {slot.block: slot.height for slot in reversed(host.all_slots)}
    kernels = enumerate(leaf for leaf in cnn.host_layout(host).leaves if len(leaf.shape) == 4)
    found = [_conv_layer(f"host, {leaf.name}", leaf, sizes[i]) for i, leaf in kernels]
    for slot, blueprint in itertools.product(host.pick_slots(spec.slots), CNN_BLUEPRINTS):
        kernels = [leaf for leaf in cnn.seed_layout(blueprint, slot.channels).leaves if len(leaf.shape) == 4]
        found += [_conv_layer(f"{slot.name}, {blueprint.label}.{leaf.name}", leaf, slot.height) for leaf in kernels]
    first = {layer[1:]: layer for layer in reversed(found)}
    return [layer for layer in found if first[layer[1:]] is layer]


def _conv_layer(name: str, leaf: ParamLeaf, size: int) -> ConvLayer:
    outputs, inputs, _, kernel = leaf.shape
    depthwise = inputs == 1 and not leaf.name.startswith("block")  # a host's images may have a single channel
    return ConvLayer(name, inputs, outputs, size, kernel, depthwise)


def _layer_row(layer: ConvLayer, spec: RunSpec, device: torch.device) -> dict[str, object]:
    x, weight, push = _example_tensors(layer, spec, device)
    chosen = kernels.form_of(x, weight)
    forms = [form for form in kernels.Form if form is not kernels.Form.KERNEL or form is chosen]
    times = {form: measure_milliseconds(x, weight, push, form) for form in forms}
    shape = f"{layer.kernel}x{layer.kernel}, {layer.channels_in} -> {layer.channels}, {layer.size}x{layer.size}"
    told = {f"{form.value} ms": times.get(form) for form in kernels.Form}
    return {"convolution": layer.name, "shape": shape, **told, "chosen": chosen.value}


def _example_tensors(layer: ConvLayer, spec: RunSpec, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, weights and a gradient of the output, for one such network per env."""
    rows, samples = spec.envs, spec.data.batch
    channels = layer.channels if layer.depthwise else layer.channels_in
    shapes = (
        (samples, layer.size, layer.size, rows, channels),
        (rows, layer.channels, layer.channels_in, layer.kernel, layer.kernel),
        (samples, layer.size, layer.size, rows, layer.channels),
    )
    x, weight, push = (torch.linspace(-1.0, 1.0, math.prod(shape), device=device).view(shape) for shape in shapes)
    return x, weight, push


def measure_milliseconds(x: Tensor, weight: Tensor, grad: Tensor, form: kernels.Form) -> float:
    """Median time of forward and backward."""
    leaves = x.requires_grad_(), weight.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(ops.stacked_conv(*leaves, form=form), leaves, grad)

    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return 1e3 * timer.blocked_autorange(min_run_time=MIN_SECONDS).median
