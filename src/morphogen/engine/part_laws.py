"""Laws of parts from outside: blueprints, hosts, policy networks and learners keep the promises of their protocols.

A violation is one sentence.  The first laws of a table are quick: every part from outside is held to them when a run or
an environment is built.  `Environment.check` and `morphogen.testing` hold parts to all of them.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from morphogen.config.parts import BLUEPRINTS, HOSTS
from morphogen.config.registry import error_line, is_ours
from morphogen.config.spec import RunSpec
from morphogen.nets.forward_pass import SlotSeeds, forward, used_classes
from morphogen.nets.host_networks import HostRows
from morphogen.nets.layout import Leaves, ParamLayout
from morphogen.nets.net import Net
from morphogen.nets.seed_module import SeedModule, seed_layout
from morphogen.state import rng
from morphogen.state.env import Instance
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.slot import SlotSpec

ROWS, SAMPLES, STEPS, RATE = 3, 4, 3, 0.1  # networks, samples; steps of a descent and their size
TOLERANCE = 1e-5  # of a row alone against the row among others
Law = Callable[[Any], str]  # subject -> violation; "" = the law holds


def draw_normal(*shape: int, number: int = 0) -> Tensor:
    """Draw standard normal numbers, the same at every call.  number: of the draw -> float32 [*shape]."""
    stream = rng.stream(rng.env_keys(0, 0, 1)[0], Purpose.POLICY_INIT, minibatch=number)
    return rng.normal(stream, torch.Size(shape).numel()).view(shape)


def draw_params(layout: ParamLayout, rows: int) -> Tensor:
    """Draw initial rows, float32 [rows, size]."""
    words = [rng.uniform(rng.stream(key, Purpose.SEED_INIT), layout.size) for key in rng.env_keys(0, 0, rows)]
    return layout.draw(torch.stack(words))


def find_faults(
    laws: Mapping[str, Law], subject: Any, names: tuple[str, ...] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (law, violation) of the named laws, default all; an error is a violation."""
    for name in laws if names is None else names:
        try:
            wrong = laws[name](subject)
        except Exception as error:
            wrong = f"raises {error_line(error)}"
        if wrong:
            yield name, wrong


def descend(loss: Callable[[Tensor], Tensor], flat: Tensor, layout: ParamLayout) -> list[str]:
    """Return the names of the leaves without a gradient in each of three steps of descent.  flat [R, size]."""
    largest = torch.zeros(len(layout.leaves), dtype=torch.float32, device="cpu")
    for _ in range(STEPS):
        grad = torch.func.grad(loss)(flat)
        norms = torch.stack([part.detach().abs().amax() for _, part in layout.leaf_parts(grad)])
        largest = torch.maximum(largest, norms)
        flat = flat - RATE * grad
    pairs = zip(layout.leaves, largest, strict=True)
    return [leaf.name for leaf, size in pairs if leaf.size and not float(size) > 0.0]


def trace_graph(function: Callable[..., Any], *args: Any) -> str:
    """Return why a function is not one graph; "" if it is."""
    torch.compiler.reset()
    try:
        with warnings.catch_warnings(action="ignore"):  # of the compiler about itself
            torch.compile(function, fullgraph=True, backend="eager")(*args)
    except Exception as error:
        return f"is not one graph: torch.compile(fullgraph=True) stopped with {error_line(error)}"
    finally:
        torch.compiler.reset()
    return ""


@dataclass(frozen=True, slots=True)
class BlueprintSubject:
    """A blueprint at a slot."""

    module: SeedModule
    slot: SlotSpec

    def features(self, rows: int = ROWS, number: int = 0) -> Tensor:
        """Draw features of the slot, float32 [B, *size, rows, C]."""
        return draw_normal(SAMPLES, *self.slot.size, rows, self.slot.channels, number=number)

    @property
    def layout(self) -> ParamLayout:
        """Parameters of one seed."""
        return seed_layout(self.module, self.slot.channels)

    def newborn(self) -> Tensor:
        """Draw the parameters of newborn seeds, float32 [R, size]."""
        return draw_params(self.layout, ROWS)

    def grown(self) -> Tensor:
        """Draw parameters away from birth, float32 [R, size]."""
        return self.newborn() + 0.3 * draw_normal(ROWS, self.layout.size, number=9)

    def delta(self, flat: Tensor, x: Tensor) -> Tensor:
        """Return the deltas of rows of parameters."""
        return self.module.delta(self.layout.split(flat), x)


def declares_params(subject: BlueprintSubject) -> str:
    """It has as many parameters as it declares."""
    declared, size = subject.module.params(subject.slot.channels), subject.layout.size
    return "" if declared == size else f"has {size} parameters at {subject.slot.name}, and declares {declared}"


def keeps_form(subject: BlueprintSubject) -> str:
    """Its delta has the shape and the dtype of the features."""
    for dtype in (torch.float32, torch.float64):
        x = subject.features().to(dtype)
        out = subject.delta(subject.newborn().to(dtype), x)
        if (out.shape, out.dtype) != (x.shape, x.dtype):
            got = f"{out.dtype} {list(out.shape)}"
            return f"expected a delta like the features, {x.dtype} {list(x.shape)}, got {got}"
    return ""


def is_identity(subject: BlueprintSubject) -> str:
    """It changes nothing at birth."""
    delta = subject.delta(subject.newborn(), subject.features())
    return "" if not delta.any() else "is not the identity at birth: a delta of newborn seeds is not exactly 0"


def gets_gradients(subject: BlueprintSubject) -> str:
    """Every parameter gets a gradient within three steps."""
    x, out_grad = subject.features(), subject.features(number=1)
    idle = descend(lambda flat: (subject.delta(flat, x) * out_grad).sum(), subject.newborn(), subject.layout)
    return f"gets no gradient within {STEPS} steps: {', '.join(idle)}" if idle else ""


def separates_rows(subject: BlueprintSubject) -> str:
    """A seed does not see its neighbours, and invalid numbers stay in their seed."""
    flat, x = subject.grown(), subject.features()
    together = subject.delta(flat, x)
    for row in range(ROWS):
        alone = subject.delta(flat[row : row + 1], x[..., row : row + 1, :].contiguous())
        if not torch.allclose(alone, together[..., row : row + 1, :], rtol=TOLERANCE, atol=TOLERANCE):
            return f"sees its neighbours: row {row} alone differs from row {row} among others"
    broken = subject.delta(torch.cat((flat[:-1], flat[-1:] * torch.nan)), x)
    return "" if torch.equal(broken[..., :-1, :], together[..., :-1, :]) else "lets NaN of a seed into another one"


def stays_on_device(subject: BlueprintSubject) -> str:
    """It reads no value on the host: it runs on the meta device."""
    out = subject.delta(subject.newborn().to("meta"), subject.features().to("meta"))
    return "" if out.device.type == "meta" else f"makes tensors on {out.device} for inputs on the meta device"


def keeps_inputs(subject: BlueprintSubject) -> str:
    """It does not write to its inputs."""
    flat, x = subject.grown(), subject.features()
    copies = flat.clone(), x.clone()
    subject.delta(flat, x)
    return "" if torch.equal(flat, copies[0]) and torch.equal(x, copies[1]) else "writes to its inputs"


def is_one_graph(subject: BlueprintSubject) -> str:
    """It compiles to one graph, with its gradient."""
    x, out_grad = subject.features(), subject.features(number=1)
    grad = torch.func.grad(lambda flat: (subject.delta(flat, x) * out_grad).sum())
    return trace_graph(grad, subject.grown())


BLUEPRINT_LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        *(declares_params, keeps_form, is_identity),
        *(keeps_inputs, gets_gradients, separates_rows, stays_on_device, is_one_graph),
    )
}


@dataclass(frozen=True, slots=True)
class HostSubject:
    """A host with its slots."""

    net: Net

    @property
    def layout(self) -> ParamLayout:
        """Parameters of one host."""
        return self.net.host_layout

    def params(self) -> Tensor:
        """Draw the parameters of fresh hosts, float32 [R, P]."""
        return draw_params(self.layout, ROWS)

    def instance(self, rows: int = ROWS) -> Instance:
        """Return the reference instance of all hosts, [R]."""
        classes = self.net.host.classes
        whole = torch.ones(rows, dtype=torch.float32, device="cpu")
        first = torch.zeros(rows, dtype=torch.int64, device="cpu")
        return Instance(
            width=whole,
            data_share=whole,
            label_noise=0.0 * whole,
            classes=torch.full((rows,), classes, device="cpu"),
            reach=torch.full((rows,), self.net.host.reach, device="cpu"),
            param_price=0.1 * whole,
            samples=torch.full((rows,), SAMPLES, device="cpu"),
            baseline_loss=whole,
            class_of=torch.arange(classes, device="cpu").expand(rows, -1),
            usable=torch.empty(rows, 0, dtype=torch.int32, device="cpu"),
            regime=first,
            view_code=first,
            batch_size=[rows],
        )

    def inputs(self, *lead: int, number: int = 0) -> Tensor:
        """Draw inputs: numbers float32 [*lead, *input_shape], or int64 below the vocabulary."""
        host = self.net.host
        normal = draw_normal(*lead, *host.input_shape, number=number)
        return (normal.abs() * 1e4).to(torch.int64) % host.vocabulary if host.vocabulary else normal

    def answers(self) -> tuple[int, ...]:
        """Axes of the answers to a sample: none, or the places of a causal host."""
        return self.net.host.input_shape if self.net.host.causal else ()

    def logits(self, flat: Tensor, inputs: Tensor, instance: Instance | None = None) -> Tensor:
        """Return the logits of hosts without seeds, float32 [R, B, classes]."""
        instance = self.instance(flat.shape[0]).to(flat.device) if instance is None else instance
        nothing = (None,) * len(self.net.slots)
        growth = SlotSeeds((), nothing, nothing)
        return forward(inputs, self.rows(flat, instance), used_classes(instance, self.net), growth, net=self.net)

    def rows(self, flat: Tensor, instance: Instance) -> HostRows:
        """Return hosts with these parameters, one row each."""
        leaves: Leaves = self.layout.split(flat)
        return HostRows(leaves, self.net.networks.masks(instance, flat), None)


def orders_slots(subject: HostSubject) -> str:
    """Its slots have distinct names, are numbered in the order of the forward pass, and pool only images."""
    slots = subject.net.host.all_slots
    names = [slot.name for slot in slots]
    if not slots or len(set(names)) < len(names):
        return f"slots: expected at least one, each with a name of its own, got {names}"
    order = [slot.execution for slot in slots]
    if order != list(range(len(slots))):
        return f"slots: expected `execution` 0 .. {len(slots) - 1} in order, got {order}"
    flat = [slot.name for slot in slots if slot.pooled and len(slot.size) != 2]
    return (
        f"slots: expected height and width where the features are pooled, got none at {', '.join(flat)}" if flat else ""
    )


def counts_params(subject: HostSubject) -> str:
    """It has as many parameters as it declares, also under an instance that restricts nothing."""
    declared, size = subject.net.host.params(), subject.layout.size
    if declared != size:
        return f"has {size} parameters, and declares {declared}"
    used = subject.net.networks.params_in_use(subject.instance())
    fits = used.shape == (ROWS,) and used.dtype == torch.int64 and bool((used == size).all())
    return "" if fits else f"params_in_use: expected {size} for each of {ROWS} whole hosts, int64, got {used.tolist()}"


def declares_features(subject: HostSubject) -> str:
    """Its features have the declared form at every slot, and its logits that of its classes."""
    net, flat = subject.net, subject.params()
    rows, inputs = subject.rows(flat, subject.instance()), subject.inputs(ROWS, SAMPLES)
    h = net.networks.embed(inputs)
    for i, slot in enumerate(net.host.all_slots):
        h = net.networks.stage(i, h, rows)
        expected = (SAMPLES, *slot.size, ROWS, slot.channels)
        if h.shape != expected:
            return f"features at {slot.name}: expected {list(expected)}, as declared, got {list(h.shape)}"
        if slot.pooled:
            h = h[:, : slot.size[0] // 2, : slot.size[1] // 2]
    logits, expected = net.networks.head(h, rows), (ROWS, SAMPLES, *subject.answers(), net.host.classes)
    return "" if logits.shape == expected else f"logits: expected {list(expected)}, got {list(logits.shape)}"


def shares_inputs(subject: HostSubject) -> str:
    """Inputs that all hosts share give the logits of the same inputs for each host."""
    flat, inputs = subject.params(), subject.inputs(SAMPLES)
    shared, own = subject.logits(flat, inputs), subject.logits(flat, inputs.expand(ROWS, *inputs.shape).contiguous())
    return "" if torch.allclose(shared, own, atol=TOLERANCE) else "gives other logits for inputs that all rows share"


def separates_hosts(subject: HostSubject) -> str:
    """A host does not see its neighbours, and invalid numbers stay in their host."""
    flat, inputs = subject.params(), subject.inputs(ROWS, SAMPLES)
    together = subject.logits(flat, inputs)
    for row in range(ROWS):
        alone = subject.logits(flat[row : row + 1], inputs[row : row + 1])
        if not torch.allclose(alone[0], together[row], rtol=TOLERANCE, atol=TOLERANCE):
            return f"sees its neighbours: row {row} alone differs from row {row} among others"
    broken = subject.logits(torch.cat((flat[:-1], flat[-1:] * torch.nan)), inputs)
    return "" if torch.equal(broken[:-1], together[:-1]) else "lets NaN of a host into another one"


def trains_everything(subject: HostSubject) -> str:
    """Every parameter gets a gradient within three steps."""
    inputs, out_grad = (
        subject.inputs(ROWS, SAMPLES),
        draw_normal(ROWS, SAMPLES, *subject.answers(), subject.net.host.classes, number=1),
    )
    idle = descend(_loss(subject, inputs, out_grad), subject.params(), subject.layout)
    return f"gets no gradient within {STEPS} steps: {', '.join(idle)}" if idle else ""


def _loss(subject: HostSubject, inputs: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the weighted sum of the logits, per answer to a sample, as a function of the parameters."""
    instance, answers = subject.instance(), math.prod(subject.answers())
    return lambda flat: (subject.logits(flat, inputs, instance) * weight).sum() / answers


def runs_on_meta(subject: HostSubject) -> str:
    """It reads no value on the host: it runs on the meta device."""
    out = subject.logits(subject.params().to("meta"), subject.inputs(ROWS, SAMPLES).to("meta"))
    return "" if out.device.type == "meta" else f"makes tensors on {out.device} for inputs on the meta device"


def traces_whole(subject: HostSubject) -> str:
    """It compiles to one graph, with its gradient."""
    inputs, out_grad = (
        subject.inputs(ROWS, SAMPLES),
        draw_normal(ROWS, SAMPLES, *subject.answers(), subject.net.host.classes, number=1),
    )
    return trace_graph(torch.func.grad(_loss(subject, inputs, out_grad)), subject.params())


HOST_LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        *(orders_slots, counts_params, declares_features),
        *(shares_inputs, separates_hosts, trains_everything, runs_on_meta, traces_whole),
    )
}
QUICK = 3  # laws of a table to which every part from outside is held


def blueprint_faults(
    module: SeedModule, slots: tuple[SlotSpec, ...], *, quick: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield (law, violation) of a blueprint at slots, each form of features once."""
    forms = {(slot.channels, slot.size): slot for slot in slots}
    names = tuple(itertools.islice(BLUEPRINT_LAWS, QUICK)) if quick else None
    for slot in forms.values():
        yield from find_faults(BLUEPRINT_LAWS, BlueprintSubject(module, slot), names)


def host_faults(net: Net, *, quick: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (law, violation) of a host."""
    yield from find_faults(HOST_LAWS, HostSubject(net), tuple(itertools.islice(HOST_LAWS, QUICK)) if quick else None)


def setup_faults(spec: RunSpec, net: Net, *, quick: bool) -> Iterator[str]:
    """Yield the violations of the host and the blueprints of a run that are from outside, with their origin."""
    if not is_ours(net.host):
        source = HOSTS.source(spec.host.name) if spec.host.name else f"host of task {spec.task}"
        yield from (f"{source}: {wrong}" for _, wrong in host_faults(net, quick=quick))
    for module in net.modules.values():
        if not is_ours(module):
            faults = blueprint_faults(module, net.slots, quick=quick)
            yield from (f"{BLUEPRINTS.source(module.name)}: {wrong}" for _, wrong in faults)
