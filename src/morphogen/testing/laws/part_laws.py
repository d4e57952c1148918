"""Laws of blueprints and hosts.

What every step keeps (`step`), a part keeps as a function of rows of parameters.  A law of a part
is a function (part) -> violation, one of its rows a function (subject, example) -> violation.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
from morphogen.testing.laws.step import (
    Subject,
    check_one_graph,
    host,
    neighbours,
    over_rows,
    repeats,
    writes,
)
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


class RowPart:
    """A part whose networks are rows of parameters."""

    name: str
    layout: ParamLayout

    def call(self, params: Tensor, inputs: Tensor, instance: Any) -> Tensor:
        """Return the results of the networks, [R, ...]."""
        raise NotImplementedError

    def examples(self) -> list[RowExample]:
        """Return arguments of `call`."""
        raise NotImplementedError

    def rows(self) -> tuple[Subject, list[RowExample]]:
        """Return `call` for the laws of a step, and its examples."""
        return Subject(self.call, self.name, tolerance=TOLERANCE), self.examples()

    def loss(self, *args: Any) -> Tensor:
        """Return the sum of the results, weighted from -1 to 1 along each row."""
        x = self.call(*args)
        weights = torch.linspace(-1.0, 1.0, x[0].numel(), dtype=x.dtype, device=x.device)
        return (x.flatten(1) * weights).sum()


def _miscount(part: RowPart, declared: int) -> str:
    """Return a violation if a part has another number of parameters than it declares."""
    size = part.layout.size
    return "" if declared == size else f"has {size} parameters, declares {declared}"


def isolates(subject: Subject, example: RowExample) -> str:
    """Invalid numbers stay in their row."""
    params = torch.cat((example.params[:-1], example.params[-1:] * torch.nan))
    clean = subject(example)
    broken = subject(example._replace(params=params))
    return "" if torch.equal(broken[:-1], clean[:-1]) else "lets NaN of a row into another one"


def gets_gradients(part: RowPart) -> str:
    """Every parameter gets a gradient within three steps."""
    _, *rest = part.examples()[0]
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


@dataclass(frozen=True)
class DeltaRows(RowPart):
    """Deltas of a blueprint at a slot, [R, B, *size, C]."""

    module: SeedModule
    slot: SlotSpec

    @property
    def name(self) -> str:
        """Name of the blueprint."""
        return self.module.name

    @property
    def layout(self) -> ParamLayout:
        """Parameters of one seed."""
        return seed_layout(self.module, self.slot.channels)

    def call(self, params: Tensor, inputs: Tensor, instance: Any) -> Tensor:
        """Return the deltas of features."""
        return self.module.delta(self.layout.split(params), inputs.movedim(0, -2)).movedim(-2, 0)

    def examples(self) -> list[RowExample]:
        """Return seeds away from birth, and features of the slot."""
        params = draw_params(self.layout)
        size = (ROWS, SAMPLES, *self.slot.size, self.slot.channels)
        return [
            RowExample(
                params + 0.3 * draw_normal(*params.shape, number=number + 8),
                draw_normal(*size, number=number),
            )
            for number in range(2)
        ]


def declares_params(part: DeltaRows) -> str:
    """It has as many parameters as it declares."""
    return _miscount(part, part.module.params(part.slot.channels))


def keeps_form(part: DeltaRows) -> str:
    """Its delta has the shape and the dtype of the features, and finite numbers."""
    single = blueprint_fault(part.module, part.slot)
    return single or blueprint_fault(part.module, part.slot, torch.float64)


def is_identity(part: DeltaRows) -> str:
    """It changes nothing at birth."""
    newborn = part.examples()[0]._replace(params=draw_params(part.layout))
    wrong = "is not the identity at birth: a delta of newborn seeds is not exactly 0"
    return wrong if part.call(*newborn).any() else ""


BLUEPRINT_LAWS = name_laws(
    declares_params, keeps_form, is_identity, *ROW_LAWS, gets_gradients, graph
)


@dataclass(frozen=True)
class LogitRows(RowPart):
    """Logits of hosts without seeds, float32 [R, B, classes]."""

    net: Net

    @property
    def name(self) -> str:
        """Name of the class of the host."""
        return type(self.net.host).__name__

    @property
    def layout(self) -> ParamLayout:
        """Parameters of one host."""
        return self.net.host_layout

    def call(self, params: Tensor, inputs: Tensor, instance: Instance) -> Tensor:
        """Return the logits of inputs."""
        nothing = (None,) * len(self.net.slots)
        masks = self.net.networks.masks(instance, params)
        return forward(
            inputs,
            HostRows(self.layout.split(params), masks, None),
            used_classes(instance, self.net),
            SlotSeeds((), nothing, nothing),
            net=self.net,
        )

    def examples(self) -> list[RowExample]:
        """Return fresh hosts, and inputs [R, B, *input_shape]."""
        host = self.net.host
        params = draw_params(self.layout)
        return [
            RowExample(
                params, draw_inputs(host, ROWS, SAMPLES, number=number), reference_rows(host)
            )
            for number in range(2)
        ]


def orders_slots(part: LogitRows) -> str:
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


def counts_params(part: LogitRows) -> str:
    """It has as many parameters as it declares, also under an instance that restricts nothing."""
    if wrong := _miscount(part, part.net.host.params()):
        return wrong
    used = part.net.networks.params_in_use(reference_rows(part.net.host))
    wanted = torch.full((ROWS,), part.layout.size, device="cpu")
    wrong = f"params_in_use: expected {wanted.tolist()}, int64, got {used.tolist()}"
    return "" if tensors_equal(used, wanted) else wrong


def declares_features(part: LogitRows) -> str:
    """Its features have the declared form at every slot, its logits match its classes."""
    return host_fault(part.net)


def shares_inputs(part: LogitRows) -> str:
    """Inputs that all hosts share give the logits of the same inputs for each host."""
    params, inputs, instance = part.examples()[0]
    shared = part.call(params, inputs[0], instance)
    single = part.call(params, inputs[:1].expand_as(inputs).contiguous(), instance)
    same = torch.allclose(shared, single, atol=TOLERANCE)
    return "" if same else "gives other logits for inputs that all rows share"


HOST_LAWS = name_laws(
    orders_slots,
    counts_params,
    declares_features,
    *ROW_LAWS,
    shares_inputs,
    gets_gradients,
    graph,
)
