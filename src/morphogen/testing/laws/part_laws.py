"""Laws of blueprints and hosts.

What every step keeps (`step`), a part keeps as a function of rows of parameters.  A law of a part
is a function (part) -> violation, one of its rows a function (subject, example) -> violation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from morphogen.config.host import Host
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
from morphogen.testing.laws.step import (
    Subject,
    check_one_graph,
    host,
    neighbours,
    over_rows,
    repeats,
    writes,
)
from morphogen.vocab.blueprint import assign_codes
from morphogen.vocab.slot import SlotSpec

STEPS = 3  # of a descent in which every parameter gets a gradient
RATE = 0.1
TOLERANCE = 1e-4  # of a row alone against the row among others, times 1 + |x|


class RowExample(NamedTuple):
    """Parameters of networks float32 [R, size], their inputs [R, B, ...], and the instances [R] of
    hosts.
    """

    params: Tensor
    inputs: Tensor
    instance: Instance | None = None


@dataclass(frozen=True)
class RowPart:
    """A part whose networks are rows of parameters: a blueprint at a slot, or a host."""

    name: str
    layout: ParamLayout
    declared: int
    """Number of parameters of a network as the part declares it."""
    call: Callable[[Tensor, Tensor, Any], Tensor]
    """Params, inputs, instance -> results [R, ...]."""
    examples: list[RowExample]
    fault: Callable[[], str]
    """Return the fault in the form of the results; "" without one."""
    net: Any = None
    """`Net` of a host."""

    def rows(self) -> tuple[Subject, list[RowExample]]:
        """Return `call` for the laws of a step, and its examples."""
        return Subject(self.call, self.name, tolerance=TOLERANCE), self.examples

    def loss(self, *args: Any) -> Tensor:
        """Return the sum of the results, weighted from -1 to 1 along each row."""
        x = self.call(*args)
        weights = torch.linspace(-1.0, 1.0, x[0].numel(), dtype=x.dtype, device=x.device)
        return (x.flatten(1) * weights).sum()


def declares_params(part: RowPart) -> str:
    """It has as many parameters as it declares."""
    wrong = f"has {part.layout.size} parameters, declares {part.declared}"
    return "" if part.declared == part.layout.size else wrong


def keeps_form(part: RowPart) -> str:
    """Its results have the declared shapes and dtypes, and finite numbers."""
    return part.fault()


def isolates(subject: Subject, example: RowExample) -> str:
    """Invalid numbers stay in their row."""
    params = torch.cat((example.params[:-1], example.params[-1:] * torch.nan))
    clean = subject(example)
    broken = subject(example._replace(params=params))
    return "" if torch.equal(broken[:-1], clean[:-1]) else "lets NaN of a row into another one"


def gets_gradients(part: RowPart) -> str:
    """Every parameter gets a gradient within three steps."""
    _, *rest = part.examples[0]
    layout = part.layout
    flat = draw_params(layout)
    idle = {leaf.name for leaf in layout.leaves if leaf.size}
    for _ in range(STEPS):
        grad = torch.func.grad(part.loss)(flat, *rest)
        idle -= {leaf.name for leaf, x in layout.leaf_parts(grad) if x.abs().amax() > 0.0}
        flat = flat - RATE * grad
    names = ", ".join(leaf.name for leaf in layout.leaves if leaf.name in idle)
    return f"gets no gradient within {STEPS} steps: {names}" if names else ""


def graph(part: RowPart) -> str:
    """It compiles to one graph, with its gradient."""
    subject, examples = part.rows()
    check_one_graph(replace(subject, call=torch.func.grad(part.loss)), examples, backend="eager")
    return ""


ROW_LAWS = tuple(
    over_rows(RowPart.rows, law) for law in (host, writes, repeats, neighbours, isolates)
)


def blueprint_rows(module: SeedModule, slot: SlotSpec) -> RowPart:
    """Return the deltas of a blueprint at a slot, [R, B, *size, C], of seeds away from birth."""
    layout = seed_layout(module, slot.channels)
    size = (ROWS, SAMPLES, *slot.size, slot.channels)
    newborn = draw_params(layout)
    examples = [
        RowExample(
            newborn + 0.3 * draw_normal(*newborn.shape, number=number + 8),
            draw_normal(*size, number=number),
        )
        for number in range(2)
    ]

    def delta(params: Tensor, inputs: Tensor, instance: Any) -> Tensor:
        return module.delta(layout.split(params), inputs.movedim(0, -2)).movedim(-2, 0)

    def fault() -> str:
        single = blueprint_fault(module, slot)
        return single or blueprint_fault(module, slot, torch.float64)

    return RowPart(
        module.name, layout, module.params(slot.channels), delta, examples=examples, fault=fault
    )


def is_identity(part: RowPart) -> str:
    """It changes nothing at birth."""
    newborn = part.examples[0]._replace(params=draw_params(part.layout))
    wrong = "is not the identity at birth: a delta of newborn seeds is not exactly 0"
    return wrong if part.call(*newborn).any() else ""


BLUEPRINT_LAWS = name_laws(
    declares_params, keeps_form, is_identity, *ROW_LAWS, gets_gradients, graph
)


def host_rows(host: Host) -> RowPart:
    """Return the logits of hosts without seeds, float32 [R, B, classes]."""
    net = Net(host, host.pick_slots(tuple(slot.name for slot in host.all_slots)), assign_codes(()))
    layout = net.host_layout
    nothing = (None,) * len(net.slots)
    params = draw_params(layout)
    examples = [
        RowExample(params, draw_inputs(host, ROWS, SAMPLES, number=number), reference_rows(host))
        for number in range(2)
    ]

    def logits(params: Tensor, inputs: Tensor, instance: Instance) -> Tensor:
        return forward(
            inputs,
            HostRows(layout.split(params), net.networks.masks(instance, params), None),
            used_classes(instance, net),
            SlotSeeds((), nothing, nothing),
            net=net,
        )

    return RowPart(
        type(host).__name__,
        layout,
        host.params(),
        logits,
        examples=examples,
        fault=partial(host_fault, net),
        net=net,
    )


def orders_slots(part: RowPart) -> str:
    """Its slots have distinct names, are numbered in the order of the forward pass, and pool only
    images.
    """
    slots = part.net.host.all_slots
    names = [slot.name for slot in slots]
    order = [slot.execution for slot in slots]
    flat = [slot.name for slot in slots if slot.pooled and len(slot.size) != 2]
    if not slots or len(set(names)) < len(names):
        return f"slots: expected at least one, each with a name of its own, got {names}"
    if order != list(range(len(slots))):
        return f"slots: expected `execution` 0 .. {len(slots) - 1} in order, got {order}"
    wrong = f"slots: expected height and width where features are pooled, got none at {flat}"
    return wrong if flat else ""


def uses_params(part: RowPart) -> str:
    """It uses all of its parameters under an instance that restricts nothing."""
    used = part.net.networks.params_in_use(part.examples[0].instance)
    wanted = torch.full((ROWS,), part.layout.size, device="cpu")
    wrong = f"params_in_use: expected {wanted.tolist()}, int64, got {used.tolist()}"
    return "" if tensors_equal(used, wanted) else wrong


def shares_inputs(part: RowPart) -> str:
    """Inputs that all hosts share give the logits of the same inputs for each host."""
    params, inputs, instance = part.examples[0]
    shared = part.call(params, inputs[0], instance)
    single = part.call(params, inputs[:1].expand_as(inputs).contiguous(), instance)
    same = torch.allclose(shared, single, atol=TOLERANCE)
    return "" if same else "gives other logits for inputs that all rows share"


HOST_LAWS = name_laws(
    orders_slots,
    declares_params,
    uses_params,
    keeps_form,
    *ROW_LAWS,
    shares_inputs,
    gets_gradients,
    graph,
)
