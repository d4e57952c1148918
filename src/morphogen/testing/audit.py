"""Does a function ever ask the host?  Three checks that catch different things, and what each has found.

    import torch
    from morphogen.testing import audit

    def mean_of_the_measured(x, valid):
        return x[valid].mean()  # how many are valid is known to the device only

    found = audit.audit(mean_of_the_measured, torch.ones(3), torch.tensor([True, False, True]))
    assert found.reads[0].op == "aten.index"  # boolean indexing; `.where` is the line that asked
    assert "meta" in found.describe()

`record_host_reads` runs the function under a dispatch mode: it sees `.item()`, `bool(x)`, `nonzero`, `unique` and
boolean indexing, with the line that asked, and misses `.tolist()`, `.numpy()` and a `.cpu()` of a tensor on the CPU.
`meta_failure` runs it on the `meta` device, where there are no values to read: it catches all of these, and results
that were made elsewhere.
`source_reads` looks for the names of such calls in the source, in branches that were not taken too.
"""

import ast
import functools
import inspect
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from morphogen.testing.builders.tree_equality import copy_tree, leaves, move_tree

# Names that leave the device, as attributes in a source.
HOST_READS = {"item", "cpu", "tolist", "numpy", "nonzero", "masked_select", "unique", "argwhere"}
# Operators whose result or its shape depends on values, so that the host has to wait for them.
READING_OPS = {
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "nonzero_numpy", "argwhere", "masked_select"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount", "histc"),
}
_INDEXING_OPS = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_LIBRARY_PATHS = ("/torch/", "/tensordict/", "<frozen")


@dataclass(frozen=True, slots=True)
class HostRead:
    """One read of the device by the host.  `where`: file, line and text of the call outside of torch."""

    op: str
    location: str


class HostReadMode(TorchDispatchMode):
    """Collects host reads while it is entered; of what runs inside it changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[HostRead] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operator; note it if it reads."""
        name = func._schema.name.removeprefix("aten::")
        masks = name in _INDEXING_OPS and any(_is_mask(index) for index in args[1])
        crosses = name in ("_to_copy", "copy_") and _leaves_device(name, args, kwargs or {})
        repeats = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        if name in READING_OPS or masks or crosses or repeats:
            self.reads.append(HostRead(f"aten.{name}", _caller()))
        return func(*args, **(kwargs or {}))


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _leaves_device(name: str, args: tuple, kwargs: dict) -> bool:
    """A copy from a device with values of its own to the CPU."""
    source = args[1] if name == "copy_" else args[0]
    target = args[0].device if name == "copy_" else kwargs.get("device")
    return source.device.type not in ("cpu", "meta") and target is not None and torch.device(target).type == "cpu"


def _caller() -> str:
    """The innermost line of the stack that belongs neither to torch nor to this module."""
    for frame in reversed(traceback.extract_stack()[:-2]):
        if frame.filename != __file__ and not any(part in frame.filename for part in _LIBRARY_PATHS):
            return f"{frame.filename}:{frame.lineno}: {frame.line}"
    return "unknown"


def record_host_reads(function: Callable, *args: Any, **kwargs: Any) -> list[HostRead]:
    """The host reads of one real run, in order."""
    with HostReadMode() as seen:
        function(*args, **kwargs)
    return seen.reads


def meta_failure(function: Callable, *args: Any, **kwargs: Any) -> str:
    """Why the function does not run on the `meta` device or leaves it; empty if it runs there and stays."""
    try:
        out = function(*move_tree(args, "meta"), **move_tree(kwargs, "meta"))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    strays = sorted(path for path, leaf in leaves(out).items() if leaf.device.type != "meta")
    return f"its output {strays[0] or 'tensor'} is on {leaves(out)[strays[0]].device}" if strays else ""


def source_reads(source: str) -> list[tuple[int, str]]:
    """Attributes in a source text that leave the device: (line, name)."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return sorted((node.lineno, node.attr) for node in found if node.attr in HOST_READS)


@dataclass(frozen=True, slots=True)
class Audit:
    """Findings of the three checks; falsy without a finding."""

    reads: list[HostRead] = field(default_factory=list)
    meta_failure: str = ""
    source_reads: list[tuple[int, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reads or self.meta_failure or self.source_reads)

    def describe(self) -> str:
        """All findings in one sentence; empty where all is well."""
        parts = [f"{self.reads[0].op} at {self.reads[0].location}"] if self.reads else []
        parts += [f"on the meta device, which has no values: {self.meta_failure}"] if self.meta_failure else []
        parts += [f"line {line} of its source has .{name}" for line, name in self.source_reads[:1]]
        return "; ".join(parts)


def audit(function: Callable, *args: Any, source: Callable | None = None, **kwargs: Any) -> Audit:
    """All three checks; the arguments are copied.  `source`: whose source is read, where it is not the function's."""
    reads = record_host_reads(function, *copy_tree(args), **copy_tree(kwargs))
    return Audit(reads, meta_failure(function, *args, **kwargs), source_reads(read_source(source or function)))


def read_source(function: Callable) -> str:
    """The source of a function, or of the `__call__` of an object; empty where it cannot be told.

    A lambda has none of its own: the lines it stands in hold its neighbours too.
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
