"""Does a function read the device on the host?  Two checks that catch different reads.

    import torch
    from morphogen.testing import audit


    def mean_of_the_measured(x, valid):
        return x[valid].mean()  # only the device knows the number of valid entries


    found = audit.audit(mean_of_the_measured, torch.ones(3), torch.tensor([True, False, True]))
    assert found.startswith("aten.index at ")  # boolean indexing, and the line of the read
    assert "meta" in found

`HostReadMode` is a dispatch mode: it records `.item()`, `bool(x)`, `nonzero`, `unique` and boolean
indexing with their lines; it misses `.tolist()`, `.numpy()` and a `.cpu()` of a tensor on the CPU.
`meta_failure` runs the function on the `meta` device, which has no values: it catches all of these,
and results on other devices.
"""

import traceback
from collections.abc import Callable
from typing import Any

from morphogen.compat import TorchDispatchMode
from morphogen.config.registry import error_line
from morphogen.device.host_reads import reads_host
from morphogen.testing.builders.tree_equality import copy_tree, leaves, move_tree

LIBRARY_PATHS = ("/torch/", "/tensordict/", "<frozen")


class HostReadMode(TorchDispatchMode):
    """Dispatch mode that collects host reads and changes no result.

    `reads`: operator, file, line and text of each call outside torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operator; record a read."""
        named = kwargs or {}
        if reads_host(func, args, named):
            self.reads.append(f"{func.overloadpacket} at {_caller()}")
        return func(*args, **named)


def _caller() -> str:
    """Return the innermost line of the stack outside torch and this module."""
    for frame in reversed(traceback.extract_stack()[:-2]):
        if frame.filename != __file__ and not any(part in frame.filename for part in LIBRARY_PATHS):
            return f"{frame.filename}:{frame.lineno}: {frame.line}"
    return "unknown"


def meta_failure(function: Callable, *args: Any) -> str:
    """Describe why the function fails on the `meta` device or leaves the device; empty if it does
    neither.
    """
    try:
        out = leaves(function(*move_tree(args, "meta")))
    except Exception as error:
        return error_line(error)
    strays = (path for path, leaf in out.items() if leaf.device.type != "meta")
    stray = next(strays, None)
    return "" if stray is None else f"its output {stray or 'tensor'} is on {out[stray].device}"


def audit(function: Callable[..., Any], *args: Any) -> str:
    """Describe the findings of both checks on copies of the arguments; empty without a finding."""
    with HostReadMode() as mode:
        function(*copy_tree(args))
    found = mode.reads[:1]
    if failure := meta_failure(function, *args):
        found.append(f"on the meta device, which has no values: {failure}")
    return "; ".join(found)
