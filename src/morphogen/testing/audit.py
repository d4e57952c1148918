"""Does a function read the device on the host?  Three checks that catch different things, and
their findings.

    import torch
    from morphogen.testing import audit


    def mean_of_the_measured(x, valid):
        return x[valid].mean()  # only the device knows the number of valid entries


    found = audit.audit(mean_of_the_measured, torch.ones(3), torch.tensor([True, False, True]))
    assert (
        found.reads[0].op == "aten.index"
    )  # boolean indexing; `.location` is the line of the read
    assert "meta" in found.describe()

`record_host_reads` runs the function under a dispatch mode: reports `.item()`, `bool(x)`,
`nonzero`, `unique` and
boolean indexing with their lines; misses `.tolist()`, `.numpy()` and a `.cpu()` of a tensor on the
CPU.
`meta_failure` runs the function on the `meta` device, which has no values: catches all of these,
and results on other
devices.
`source_reads` finds the names of such calls in the source, also in branches that did not run.
"""

import ast
import functools
import inspect
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from morphogen.compat import TorchDispatchMode
from morphogen.device.host_reads import reads_host
from morphogen.testing.builders.tree_equality import copy_tree, leaves, move_tree

# Names that leave the device, as attributes in a source.
HOST_READS = {"item", "cpu", "tolist", "numpy", "nonzero", "masked_select", "unique", "argwhere"}
LIBRARY_PATHS = ("/torch/", "/tensordict/", "<frozen")


@dataclass(frozen=True, slots=True)
class HostRead:
    """One read of the device by the host.  `location`: file, line and text of the call outside
    torch.
    """

    op: str
    location: str


class HostReadMode(TorchDispatchMode):
    """Dispatch mode that collects host reads and changes no result."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[HostRead] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operator; record a read."""
        if reads_host(func, args, kwargs or {}):
            self.reads.append(HostRead(str(func.overloadpacket), _caller()))
        return func(*args, **(kwargs or {}))


def _caller() -> str:
    """Return the innermost line of the stack outside torch and this module."""
    for frame in reversed(traceback.extract_stack()[:-2]):
        if frame.filename != __file__ and not any(part in frame.filename for part in LIBRARY_PATHS):
            return f"{frame.filename}:{frame.lineno}: {frame.line}"
    return "unknown"


def record_host_reads(function: Callable, *args: Any, **kwargs: Any) -> list[HostRead]:
    """Return the host reads of one real run, in order."""
    with HostReadMode() as mode:
        function(*args, **kwargs)
    return mode.reads


def meta_failure(function: Callable, *args: Any, **kwargs: Any) -> str:
    """Describe why the function fails on the `meta` device or leaves the device; empty if it does
    neither.
    """
    try:
        out = function(*move_tree(args, "meta"), **move_tree(kwargs, "meta"))
    except Exception as error:
        return describe_error(error)
    strays = sorted(path for path, leaf in leaves(out).items() if leaf.device.type != "meta")
    return (
        f"its output {strays[0] or 'tensor'} is on {leaves(out)[strays[0]].device}"
        if strays
        else ""
    )


def source_reads(source: str) -> list[tuple[int, str]]:
    """Return the attributes in a source text that leave the device: (line, name)."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return sorted((node.lineno, node.attr) for node in nodes if node.attr in HOST_READS)


@dataclass(frozen=True, slots=True)
class Audit:
    """Findings of the three checks; falsy without a finding."""

    reads: list[HostRead] = field(default_factory=list)
    meta_failure: str = ""
    source_reads: list[tuple[int, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reads or self.meta_failure or self.source_reads)

    def describe(self) -> str:
        """Describe all findings in one sentence; empty without findings."""
        parts = [f"{self.reads[0].op} at {self.reads[0].location}"] if self.reads else []
        parts += (
            [f"on the meta device, which has no values: {self.meta_failure}"]
            if self.meta_failure
            else []
        )
        parts += [f"line {line} of its source has .{name}" for line, name in self.source_reads[:1]]
        return "; ".join(parts)


def audit(
    function: Callable[..., Any],
    *args: Any,
    source: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Audit:
    """Run all three checks on copies of the arguments.  `source`: object with the source; default:
    the function.
    """
    reads = record_host_reads(function, *copy_tree(args), **copy_tree(kwargs))
    return Audit(
        reads,
        meta_failure(function, *args, **kwargs),
        source_reads(read_source(source or function)),
    )


def describe_error(error: Exception) -> str:
    """Describe an error by its type and the first line of its message."""
    lines = (line.strip() for line in str(error).splitlines())
    return f"{type(error).__name__}: {next((line for line in lines if line), 'no message')}"


def read_source(function: Callable) -> str:
    """Return the source of a function or of the `__call__` of an object; empty if unknown, and for
    a lambda.
    """
    while isinstance(function, functools.partial):
        function = function.func
    code: Any = function if inspect.isroutine(function) else type(function).__call__
    if getattr(code, "__name__", "") == "<lambda>":
        return ""
    try:
        return textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError):
        return ""
