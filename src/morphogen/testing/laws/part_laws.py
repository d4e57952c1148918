"""Laws of blueprints and hosts.

What every step keeps (`step`), a part keeps as a function of rows of parameters.  A law of a part
is a function (subject) -> violation, one of its rows a function (subject, example) -> violation.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from morphogen.env.part_check import (
    ROWS,
    SAMPLES,
    blueprint_fault,
    draw_inputs,
    draw_normal,
    draw_params,
    host_fault,
    reference_rows,
)
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.layout import ParamLayout
from morphogen.hosts.net import Net
from morphogen.hosts.seed_module import SeedModule, seed_layout
from morphogen.state.env import Instance
from morphogen.testing.builders.tree_equality import tensors_equal
from morphogen.testing.laws.search import name_laws
from morphogen.testing.laws.step import Subject, check_one_graph, host, neighbours, repeats, writes
from morphogen.vocab.slot import SlotSpec

STEPS = 3  # of a descent in which every parameter gets a gradient
RATE = 0.1
TOLERANCE = 1e-4  # of a row alone against the row among others, times 1 + |x|


class SeedRows(NamedTuple):
    """Parameters of seeds float32 [R, size], and their features float32 [R, B, *size, C]."""

    params: Tensor
    features: Tensor


class HostExample(NamedTuple):
    """Parameters of hosts float32 [R, P], their inputs [R, B, *input_shape], and their instances
    [R].
    """

    params: Tensor
    inputs: Tensor
    instance: Instance


def idle_leaves(loss: Callable[[Tensor], Tensor], flat: Tensor, layout: ParamLayout) -> str:
    """Return a violation if a leaf gets no gradient in three steps of descent.  flat [R, size]."""
    idle = {leaf.name for leaf in layout.leaves if leaf.size}
    for _ in range(STEPS):
        grad = torch.func.grad(loss)(flat)
        idle -= {leaf.name for leaf, part in layout.leaf_parts(grad) if part.abs().amax() > 0.0}
        flat = flat - RATE * grad
    names = ", ".join(leaf.name for leaf in layout.leaves if leaf.name in idle)
    return f"gets no gradient within {STEPS} steps: {names}" if names else ""


def weighted_sum(x: Tensor) -> Tensor:
    """Return the sum of x [R, ...], weighted from -1 to 1 along each row."""
    weights = torch.linspace(-1.0, 1.0, x[0].numel(), dtype=x.dtype, device=x.device)
    return (x.flatten(1) * weights).sum()


class RowSubject(Protocol):
    """Subject of laws that has rows: seeds, hosts, or the envs of a policy."""

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return a function of rows, and its examples."""
        ...

    def run(self, *args: Any) -> Any:
        """Return the results of which the compiler makes one graph, of the arguments of an
        example.
        """
        ...


def over_rows(law: Callable[[Subject, Any], str]) -> Callable[[RowSubject], str]:
    """Return a law of a step as a law of a part."""

    def check(part: RowSubject) -> str:
        subject, examples = part.rows()
        return next((text for example in examples if (text := law(subject, example))), "")

    return functools.update_wrapper(check, law)


def isolates(subject: Subject, example: Any) -> str:
    """Invalid numbers stay in their row."""
    params = torch.cat((example.params[:-1], example.params[-1:] * torch.nan))
    clean = subject(example)
    broken = subject(example._replace(params=params))
    return "" if torch.equal(broken[:-1], clean[:-1]) else "lets NaN of a row into another one"


def graph(part: RowSubject) -> str:
    """It compiles to one graph, with its gradient."""
    subject, examples = part.rows()
    check_one_graph(replace(subject, call=part.run), examples, backend="eager")
    return ""


STEP_LAWS = tuple(over_rows(law) for law in (host, writes, repeats, neighbours))
ROW_LAWS = (*STEP_LAWS, over_rows(isolates))


@dataclass(frozen=True, slots=True)
class BlueprintSubject:
    """A blueprint at a slot."""

    module: SeedModule
    slot: SlotSpec

    @property
    def layout(self) -> ParamLayout:
        """Parameters of one seed."""
        return seed_layout(self.module, self.slot.channels)

    def features(self, number: int = 0) -> Tensor:
        """Draw features of the slot, float32 [R, B, *size, C]."""
        return draw_normal(ROWS, SAMPLES, *self.slot.size, self.slot.channels, number=number)

    def delta(self, params: Tensor, features: Tensor) -> Tensor:
        """Return the deltas, [R, B, *size, C]."""
        return self.module.delta(self.layout.split(params), features.movedim(0, -2)).movedim(-2, 0)

    def run(self, params: Tensor, features: Tensor) -> Tensor:
        """Return the gradient of a weighted sum of the deltas, [R, size]."""
        return torch.func.grad(lambda flat: weighted_sum(self.delta(flat, features)))(params)

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return `delta` and examples away from birth."""
        params = draw_params(self.layout)
        grown = (params + 0.3 * draw_normal(*params.shape, number=number) for number in (8, 9))
        examples = [SeedRows(flat, self.features(number)) for number, flat in enumerate(grown)]
        return Subject(self.delta, self.module.name, tolerance=TOLERANCE), examples


def declares_params(subject: BlueprintSubject) -> str:
    """It has as many parameters as it declares."""
    return _miscount(subject.layout, subject.module.params(subject.slot.channels))


def _miscount(layout: ParamLayout, declared: int) -> str:
    """Return a violation if a layout has another number of parameters."""
    return "" if declared == layout.size else f"has {layout.size} parameters, declares {declared}"


def keeps_form(subject: BlueprintSubject) -> str:
    """Its delta has the shape and the dtype of the features, and finite numbers."""
    single = blueprint_fault(subject.module, subject.slot)
    return single or blueprint_fault(subject.module, subject.slot, torch.float64)


def is_identity(subject: BlueprintSubject) -> str:
    """It changes nothing at birth."""
    delta = subject.delta(draw_params(subject.layout), subject.features())
    wrong = "is not the identity at birth: a delta of newborn seeds is not exactly 0"
    return wrong if delta.any() else ""


def gets_gradients(subject: BlueprintSubject) -> str:
    """Every parameter gets a gradient within three steps."""
    features = subject.features()
    layout = subject.layout
    return idle_leaves(
        lambda flat: weighted_sum(subject.delta(flat, features)), draw_params(layout), layout
    )


BLUEPRINT_LAWS = name_laws(
    declares_params, keeps_form, is_identity, *ROW_LAWS, gets_gradients, graph
)


@dataclass(frozen=True, slots=True)
class HostSubject:
    """A host with its slots."""

    net: Net

    def inputs(self, number: int = 0) -> Tensor:
        """Draw inputs, [R, B, *input_shape]."""
        return draw_inputs(self.net.host, ROWS, SAMPLES, number=number)

    def logits(self, params: Tensor, inputs: Tensor, instance: Instance) -> Tensor:
        """Return the logits of hosts without seeds, float32 [R, B, classes]."""
        nothing = (None,) * len(self.net.slots)
        rows = HostRows(
            self.net.host_layout.split(params), self.net.networks.masks(instance, params), None
        )
        return forward(
            inputs,
            rows,
            used_classes(instance, self.net),
            SlotSeeds((), nothing, nothing),
            net=self.net,
        )

    def weighted(self, params: Tensor, inputs: Tensor, instance: Instance) -> Tensor:
        """Return a weighted sum of the mean logits of every class."""
        return weighted_sum(self.logits(params, inputs, instance).flatten(1, -2).mean(1))

    def run(self, params: Tensor, inputs: Tensor, instance: Instance) -> Tensor:
        """Return the gradient of a weighted sum of the logits, [R, P]."""
        return torch.func.grad(self.weighted)(params, inputs, instance)

    def rows(self) -> tuple[Subject, list[Any]]:
        """Return `logits` and examples."""
        params = draw_params(self.net.host_layout)
        instance = reference_rows(self.net.host)
        examples = [HostExample(params, self.inputs(number), instance) for number in range(2)]
        return Subject(self.logits, type(self.net.host).__name__, tolerance=TOLERANCE), examples


def orders_slots(subject: HostSubject) -> str:
    """Its slots have distinct names, are numbered in the order of the forward pass, and pool only
    images.
    """
    slots = subject.net.host.all_slots
    names = [slot.name for slot in slots]
    order = [slot.execution for slot in slots]
    flat = [slot.name for slot in slots if slot.pooled and len(slot.size) != 2]
    if not slots or len(set(names)) < len(names):
        return f"slots: expected at least one, each with a name of its own, got {names}"
    if order != list(range(len(slots))):
        return f"slots: expected `execution` 0 .. {len(slots) - 1} in order, got {order}"
    wrong = f"slots: expected height and width where features are pooled, got none at {flat}"
    return wrong if flat else ""


def counts_params(subject: HostSubject) -> str:
    """It has as many parameters as it declares, also under an instance that restricts nothing."""
    layout = subject.net.host_layout
    if wrong := _miscount(layout, subject.net.host.params()):
        return wrong
    used = subject.net.networks.params_in_use(reference_rows(subject.net.host))
    wanted = torch.full((ROWS,), layout.size, device="cpu")
    wrong = f"params_in_use: expected {wanted.tolist()}, int64, got {used.tolist()}"
    return "" if tensors_equal(used, wanted) else wrong


def declares_features(subject: HostSubject) -> str:
    """Its features have the declared form at every slot, its logits match its classes."""
    return host_fault(subject.net)


def shares_inputs(subject: HostSubject) -> str:
    """Inputs that all hosts share give the logits of the same inputs for each host."""
    params = draw_params(subject.net.host_layout)
    instance = reference_rows(subject.net.host)
    inputs = subject.inputs()[0]
    shared = subject.logits(params, inputs, instance)
    single = subject.logits(params, inputs.expand(ROWS, *inputs.shape).contiguous(), instance)
    same = torch.allclose(shared, single, atol=TOLERANCE)
    return "" if same else "gives other logits for inputs that all rows share"


def trains_everything(subject: HostSubject) -> str:
    """Every parameter gets a gradient within three steps."""
    inputs = subject.inputs()
    instance = reference_rows(subject.net.host)
    layout = subject.net.host_layout
    return idle_leaves(
        lambda flat: subject.weighted(flat, inputs, instance), draw_params(layout), layout
    )


HOST_LAWS = name_laws(
    orders_slots,
    counts_params,
    declares_features,
    *ROW_LAWS,
    shares_inputs,
    trains_everything,
    graph,
)
