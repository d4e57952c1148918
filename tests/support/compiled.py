"""Functions compiled by the default backend, in less time."""

from collections.abc import Callable
from typing import Any

import torch

OPTIONS = {
    # as a run: caches of tensordict are globals, and grow with what other tests compile
    "guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe,
    "compile_threads": 1,  # no pool of processes that load torch
    # a fifth of the time: by default 64 pairs of operations per buffer are tried as one loop
    "max_fusion_buffer_group_pairwise_attempts": 1,
}
SCALAR = {"cpp.simdlen": 1}  # scalar loops take half the time of the C++ compiler


def compile_complete(function: Callable[..., Any], *, vectors: bool = False) -> Callable[..., Any]:
    """Compile a function to one graph for constant shapes."""
    options: dict[str, Any] = OPTIONS if vectors else OPTIONS | SCALAR
    return torch.compile(function, fullgraph=True, dynamic=False, options=options)
