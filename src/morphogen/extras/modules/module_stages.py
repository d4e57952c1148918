"""A module of plain torch, cut at its slots into stages.

Torch traces the forward pass of the module into a graph of its submodules and functions.  A stage
is everything between two slots in the order of that graph.  A value that is computed before a slot
and used after it is *carried* past the slot, as the shortcut of a residual block is; a number that
is no tensor, as a size, is computed again where it is used.  Submodules without slots are never
looked into.
"""

import operator
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from morphogen.errors import ConfigError

# operators that write to their input, and their pure forms
_IN_PLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv"}


class Slot(nn.Module):
    """A place of a module where a seed can grow; outside of a run, the identity.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), mg.Slot(), torch.nn.Linear(8, 2))
        >>> net(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the features unchanged."""
        return x


def submodules(module: Any) -> list[tuple[str, Any]]:
    """Return a module and all its submodules, by name."""
    return list(module.named_modules())


class _Tracer(fx.Tracer):
    """Looks into submodules that hold slots, and into no others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return True for a slot, and for a module without slots."""
        return isinstance(m, Slot) or not any(isinstance(part, Slot) for part in m.modules())


@dataclass(frozen=True)
class ModuleStage:
    """Part of a module between two slots."""

    body: fx.GraphModule
    """Function of the features after the slot before, or of the input, and of carried values."""
    takes: tuple[str, ...]
    """Names of its arguments."""
    makes: tuple[str, ...]
    """Names of its results after the first, which is the input of the next slot, or the output."""
    keeps: tuple[str, ...]
    """Names of all values that are carried on."""


@dataclass(frozen=True)
class StagedModule:
    """A module cut at its slots."""

    entries: tuple[str, ...]
    """Name of the value with which every stage starts: the input, then the result of each slot."""
    stages: tuple[ModuleStage, ...]
    """One more than there are slots."""
    slots: tuple[str, ...]
    """Names of the slots within the module, in the order of the forward pass."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the features at every slot, without the samples."""
    output: tuple[int, ...]
    """Shape of the output, without the samples."""


def split_module(module: nn.Module, example: Tensor) -> StagedModule:
    """Cut a module at its slots.

    Args:
        module: on the device `meta`.
        example: input of the module [B, *shape], on the device `meta`; B is the size of no other
            axis.

    Raises: ConfigError for a module without slots, with a slot that is not called exactly once, or
        that torch cannot trace.
    """
    name = type(module).__name__
    graph = _trace(module, name)
    calls = [node for node in graph.nodes if _is_slot(node, module)]
    paths = [str(node.target) for node in calls]
    declared = [path for path, part in submodules(module) if isinstance(part, Slot)]
    if not declared:
        raise ConfigError(f"host {name}: expected at least one mg.Slot() in the module, got none")
    if sorted(paths) != sorted(declared):
        wrong = next(path for path in declared if paths.count(path) != 1)
        raise ConfigError(
            f"host {name}: expected every slot to be called once in the forward pass, got "
            f"{paths.count(wrong)} calls of {wrong}"
        )
    values = _run(module, graph, example, name)
    _check_batch(values, len(example), name)
    splitter = _Splitter(module, graph, calls, values)
    shapes = tuple(tuple(values[node].shape[1:]) for node in calls)
    [end] = [node for node in graph.nodes if node.op == "output"]
    output = values[end]
    shape = list(getattr(output, "shape", ()))
    if len(shape) < 2:
        raise ConfigError(
            f"host {name}: expected a tensor [B, n] as the output of the module, got "
            f"{type(output).__name__} {shape}"
        )
    entries = tuple(node.name for node in splitter.entries)
    return StagedModule(entries, splitter.stages(), tuple(paths), shapes, output=tuple(shape[1:]))


def _trace(module: nn.Module, name: str) -> fx.Graph:
    try:
        graph = _Tracer().trace(module)
    except Exception as error:
        raise ConfigError(
            f"host {name}: torch cannot trace the forward pass: {error}: move the lines that "
            "depend on values into a submodule without slots, or wrap their function with "
            "torch.fx.wrap"
        ) from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for extra in inputs[1:]:
        if extra.args:  # an argument with a default
            extra.replace_all_uses_with(extra.args[0])  # type: ignore[arg-type]
            graph.erase_node(extra)
    if len([node for node in graph.nodes if node.op == "placeholder"]) != 1:
        raise ConfigError(
            f"host {name}: expected a forward pass of one input, got {len(inputs)} inputs"
        )
    for node in graph.nodes:
        written = getattr(node.target, "__name__", "")
        if node.op == "call_function" and written in _IN_PLACE:
            node.target = getattr(operator, _IN_PLACE[written])
        elif node.op == "call_method" and str(node.target).endswith("_") and not node.users:
            raise ConfigError(
                f"host {name}: expected no value that is changed in place without its result "
                f"being used, got {node.target}: write x = x.{str(node.target).rstrip('_')}(...)"
            )
    return graph


def _is_slot(node: fx.Node, module: nn.Module) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), Slot)


def _run(module: nn.Module, graph: fx.Graph, example: Tensor, name: str) -> dict[fx.Node, Any]:
    """Return the value of every node, without data."""
    values: dict[fx.Node, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    try:
        with torch.no_grad():
            Recorder(fx.GraphModule(module, graph)).run(example)
    except Exception as error:
        last = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"host {name}: the module fails on an input of shape {list(example.shape)}: {last}"
        ) from error
    return values


def _check_batch(values: Mapping[fx.Node, Any], batch: int, name: str) -> None:
    """Raise ConfigError unless every slot and the output keep the axis of the samples first."""
    for node, value in values.items():
        slot = node.op == "call_module" and isinstance(value, Tensor)
        if not slot and node.op != "output":
            continue
        if isinstance(value, Tensor) and (not value.dim() or value.shape[0] != batch):
            raise ConfigError(
                f"host {name}: expected samples in the first axis of {node.name}, got shape "
                f"{list(value.shape)} for {batch} samples"
            )


class _Splitter:
    """Builds the stages of a traced module."""

    def __init__(
        self,
        module: nn.Module,
        graph: fx.Graph,
        slots: Sequence[fx.Node],
        values: Mapping[fx.Node, Any],
    ) -> None:
        self.module = module
        self.values = values
        nodes = list(graph.nodes)
        self.order = {node: i for i, node in enumerate(nodes)}
        output = nodes[-1].all_input_nodes[0]
        self.goals = [*(slot.all_input_nodes[0] for slot in slots), output]
        self.entries = [nodes[0], *slots]  # the value with which a stage starts
        ends = [self.order[slot] for slot in slots]
        # the result of a slot belongs to the stage after it
        self.home = {node: bisect_right(ends, i) for node, i in self.order.items()}

    def stages(self) -> tuple[ModuleStage, ...]:
        """Return all stages, from the last one back: a value is kept for the stages after it."""
        stages: list[ModuleStage] = []
        later: set[fx.Node] = set()  # values that are computed before they are needed
        for i in reversed(range(len(self.goals))):
            made = [node for node in self._sorted(later) if self._is_computed(node, i)]
            kept = self._sorted(later)
            inner, taken = self._needs([self.goals[i], *made], i)
            stages.append(self._stage([self.goals[i], *made], inner, taken, kept))
            later = (taken | (later - set(made))) - {self.entries[i]}
        return tuple(reversed(stages))

    def _sorted(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        return sorted(nodes, key=self.order.__getitem__)

    def _is_local(self, node: fx.Node) -> bool:
        """Return True for a parameter, or a value that is no tensor: each stage has it anew."""
        return node.op == "get_attr" or not isinstance(self.values[node], Tensor)

    def _is_computed(self, node: fx.Node, i: int) -> bool:
        """Return True if stage i computes a value from others."""
        return self._is_local(node) or (self.home[node] == i and node is not self.entries[i])

    def _needs(self, goals: Iterable[fx.Node], i: int) -> tuple[set[fx.Node], set[fx.Node]]:
        """Return the values that stage i computes for its goals, and the values that it takes."""
        inner: set[fx.Node] = set()
        taken: set[fx.Node] = set()
        waiting = list(goals)
        while waiting:
            node = waiting.pop()
            if node in inner or node in taken:
                continue
            if self._is_computed(node, i):
                inner.add(node)
                waiting += node.all_input_nodes
            else:
                taken.add(node)
        return inner, taken

    def _stage(
        self,
        results: list[fx.Node],
        inner: set[fx.Node],
        taken: set[fx.Node],
        kept: list[fx.Node],
    ) -> ModuleStage:
        graph = fx.Graph()
        takes = self._sorted(taken)
        copies = {node: graph.placeholder(node.name) for node in takes}
        for node in self._sorted(inner):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in results))
        return ModuleStage(
            body=fx.GraphModule(self.module, graph),
            takes=tuple(node.name for node in takes),
            makes=tuple(node.name for node in results[1:]),
            keeps=tuple(node.name for node in kept),
        )
