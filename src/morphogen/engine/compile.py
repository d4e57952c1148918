"""Compilation: the one place that calls the compiler, and the count of its graphs.

Units of fixed shapes have one graph each: observation, policy, head, tail, and a step of the update.  Training and
validation run as they are: their shapes follow the seeds that live, and few epochs have equal ones.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from tensordict import TensorClass, TensorDictBase
from torch._dynamo.utils import counters
from torch._inductor import list_mode_options
from torch.utils._pytree import tree_map

from morphogen.config.execution_spec import COMPILE_DEFAULT, COMPILE_OFF, EngineSpec
from morphogen.telemetry.round_summary import NO_COMPILES

_COMPILER_MODULES = r"torch\.|tensordict\."  # modules whose compiler warnings concern only library code
# `is_tensor_collection` caches classes, which graphs would guard on.
_TENSOR_TYPES = (torch.Tensor, TensorDictBase, TensorClass)
EAGER = EngineSpec(compile=COMPILE_OFF)
CPU = torch.device("cpu")
R = TypeVar("R")
Compiler = Callable[..., Callable[..., Any]]
COMPILER: Compiler = torch.compile
_REALIZE_SOONER = {"realize_reads_threshold": 1, "realize_opcount_threshold": 6}
_CPP_WRAPPER = {"cpp_wrapper": True}  # calls kernels from C++: on a CPU a Python call costs as much as many kernels
_NARROW_SIMD = {"cpp.simdlen": 256}  # bits: 8 floats; small networks have 8 channels, which would mask half of 16


def compiler_options(device: str, mode: str = COMPILE_DEFAULT) -> dict[str, Any]:
    """Options of the compiler for a kind of device, on top of a mode of `torch.compile`.

    The compiler inlines cheap expressions into every use.  For selected rows that means number by number, once per
    selection, so results with two uses are written to memory sooner than by default.
    """
    options = dict(_REALIZE_SOONER)
    if device == "cpu":
        options |= _CPP_WRAPPER
        options |= _NARROW_SIMD if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else {}
    return options if mode == COMPILE_DEFAULT else {**options, **list_mode_options(mode)}


def _is_tensor(node: Any) -> bool:
    return isinstance(node, _TENSOR_TYPES)


class CompiledUnits:
    """Compiled units of one run; with the default spec everything runs eager."""

    def __init__(
        self,
        spec: EngineSpec = EAGER,
        *,
        device: torch.device = CPU,
        compiler: Compiler = COMPILER,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.spec, self.device = spec, device
        self.totals = NO_COMPILES
        self._compiler, self._clock = compiler, clock
        self._units: dict[str, Callable[..., Any]] = {}

    def unit(self, key: str, function: Callable[..., R]) -> Callable[..., R]:
        """Return the compiled function of a key, compiled on first use; the function itself if all runs eager."""
        if self.spec.compile == COMPILE_OFF:
            return function
        if key not in self._units:
            options = compiler_options(self.device.type, self.spec.compile)
            graph = self._compiler(function, fullgraph=True, dynamic=False, options=options)
            self._units[key] = partial(self._call_unit, graph)
        return self._units[key]

    def _call_unit(self, graph: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a compiled unit; count and time the call if it compiles a graph."""
        before, started = counters["stats"]["unique_graphs"], self._clock()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=_COMPILER_MODULES)
            out = graph(*args, **kwargs)
            if self.spec.compile != COMPILE_DEFAULT:  # CUDA graphs write their next results to the same memory
                out = tree_map(lambda leaf: leaf.clone() if _is_tensor(leaf) else leaf, out, is_leaf=_is_tensor)
        graphs = counters["stats"]["unique_graphs"] - before
        if graphs:
            seconds = self._clock() - started
            totals = self.totals
            self.totals = totals._replace(graphs=totals.graphs + graphs, compile_s=totals.compile_s + seconds)
        return out
