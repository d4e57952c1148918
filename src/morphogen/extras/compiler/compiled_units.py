"""Compilation: the one place that calls the compiler, with the count, the seconds and the failures
of its graphs.

A run is compiled by regions.  Units of fixed shapes have one graph each, for all rounds and plans:
observe, act, apply and score.  Loops over minibatches are recorded and replayed instead
(`env.capture`): training and validation, whose shapes follow the seeds that live, so that few
epochs have equal ones, and the update of the policy.  A recording takes one minibatch where a graph
takes minutes, and replays are as fast (`bench.speed.compiled`).
"""

import time
import warnings
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, TypeVar

import torch
from tensordict import TensorClass, TensorDictBase

from morphogen.compat import compiled_graphs, list_mode_options, tree_map
from morphogen.config.execution_spec import COMPILE_OFF, EngineSpec
from morphogen.env.setup import Setup
from morphogen.env.units import Units
from morphogen.errors import CompileError, ConfigError, DeviceError
from morphogen.extras.compiler.warm_up import warm_up
from morphogen.log.round_summary import NO_COMPILES

# modules whose compiler warnings concern only library code
_COMPILER_MODULES = r"torch\.|tensordict\."
# `is_tensor_collection` caches classes, which graphs would guard on.
_TENSOR_TYPES = (torch.Tensor, TensorDictBase, TensorClass)
COMPILE_AUTO = "auto"
COMPILE_DEFAULT = "default"
EAGER = EngineSpec(compile=COMPILE_OFF)
CPU = torch.device("cpu")
R = TypeVar("R")
Compiler = Callable[..., Callable[..., Any]]
COMPILER: Compiler = torch.compile
Announce = Callable[[str, float | None], None]
_REALIZE_SOONER = {"realize_reads_threshold": 1, "realize_opcount_threshold": 6}
_SCALAR_LOOPS = {"cpp.simdlen": 1}
NETWORK_UNITS = ("act", "minibatch")  # with wide layers: vectors pay


def compiler_options(device: str, unit: str, mode: str = COMPILE_DEFAULT) -> dict[str, Any]:
    """Options of the compiler for a unit on a kind of device, on top of a mode of `torch.compile`.

    The compiler inlines cheap expressions into every use.  For selected rows that means number by
    number, once per selection, so results with two uses are written to memory sooner than by
    default.  On a CPU the loops of rules stay
    scalar: they handle few numbers per env, calls dominate their time, and the C++ compiler takes
    half as long.
    """
    options = dict(_REALIZE_SOONER)
    if device == "cpu" and unit not in NETWORK_UNITS:
        options |= _SCALAR_LOOPS
    plain = mode in (COMPILE_DEFAULT, COMPILE_AUTO)
    return options if plain else {**options, **list_mode_options(mode)}


def stay_silent(name: str, seconds: float | None) -> None:
    """Announce nothing."""


def _is_tensor(node: Any) -> bool:
    return isinstance(node, _TENSOR_TYPES)


class CompiledUnits(Units):
    """Compiled units of one run; with the default spec everything runs eager.

    Attributes: `totals`, graphs and seconds so far; `seconds`, of compiling by unit; `failure`, the
    reason why a mode `auto` runs eager, empty without one.

    Args:
        spec: its mode `compile`.
        device: of all tensors.
        compiler: `torch.compile`, or a stand-in with its signature.
        clock: in seconds.
        announce: called with the name of a unit before its first graph is compiled, and with its
        seconds after.
    """

    def __init__(
        self,
        spec: EngineSpec = EAGER,
        *,
        device: torch.device = CPU,
        compiler: Compiler = COMPILER,
        clock: Callable[[], float] = time.perf_counter,
        announce: Announce = stay_silent,
    ) -> None:
        if spec.compile == "reduce-overhead" and device.type != "cuda":
            raise DeviceError(
                f"engine.compile: {spec.compile}: expected a CUDA device, got {device}"
            )
        self.mode = spec.compile
        self.device = device
        self.totals = NO_COMPILES
        self.seconds: dict[str, float] = {}
        self.failure = ""
        self.clock = clock
        self.announce = announce
        self._compiler = compiler
        self._units: dict[tuple[str, Hashable], Callable[..., Any]] = {}

    @property
    def eager(self) -> bool:
        """True if every unit runs as it is."""
        return self.mode == COMPILE_OFF

    def unit(self, name: str, function: Callable[..., R], part: Any = None) -> Callable[..., R]:
        """Return the compiled function of a name, compiled on first use; the function itself if all
        runs eager.

        part: bound in the function, such as a policy; another part is another unit.
        """
        if self.eager:
            return function
        key = name, part if isinstance(part, Hashable) else id(part)
        if key not in self._units:
            self._units[key] = self._build_unit(name, function)
        return self._units[key]

    def _build_unit(self, name: str, function: Callable[..., R]) -> Callable[..., R]:
        options = compiler_options(self.device.type, name, self.mode)
        # such as caches of tensordict
        options["guard_filter_fn"] = torch.compiler.skip_guard_on_globals_unsafe
        graph = self._compiler(_own_code(function), fullgraph=True, dynamic=False, options=options)
        ready = False  # has a graph

        def call(*args: Any, **kwargs: Any) -> R:
            nonlocal ready
            if self.eager:
                return function(*args, **kwargs)
            if not ready:
                self.announce(name, None)
            before = compiled_graphs()
            started = self.clock()
            try:
                out = self._run_graph(graph, *args, **kwargs)
            except Exception as error:
                # of the function, not of the compiler
                if isinstance(error, ConfigError) or ready:
                    raise
                self._fail(name, error)
                return function(*args, **kwargs)
            graphs = compiled_graphs() - before
            if graphs:
                self._count(name, graphs, self.clock() - started)
            ready = True
            return out

        return call

    def turn_eager(self, reason: str) -> None:
        """Run every unit as it is from now on, for this reason."""
        self.mode = COMPILE_OFF
        self.failure = reason

    def prepare(self, setup: Setup, control: Any, console: Any, first: int) -> None:
        """Compile every unit of a run; under `auto` all processes compile, or none.

        Raises: CompileError.
        """
        if self.eager:
            return
        exchange = setup.exchange
        if console is not None:
            self.announce = console.end_compiling
        exchange.together(lambda: warm_up(setup, control, self, first))
        reasons = [reason for reason in exchange.facts(self.failure) if reason]
        if reasons:
            self.turn_eager(reasons[0])
            if console is not None:
                console.warn([f"engine.compile: auto runs eager: {reasons[0]}"])

    def _count(self, name: str, graphs: int, seconds: float) -> None:
        """Count and announce graphs of a unit that were compiled in this time."""
        totals = self.totals
        self.totals = totals._replace(
            graphs=totals.graphs + graphs, compile_s=totals.compile_s + seconds
        )
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.announce(name, seconds)

    def _fail(self, name: str, error: Exception) -> None:
        """Turn eager under `auto`, with a warning.  Raises: CompileError under every other mode."""
        reason = f"{name}: {_describe_failure(error)}"
        if self.mode != COMPILE_AUTO:
            wanted = "expected a compiler that works, or off or auto"
            raise CompileError(f"engine.compile: {reason}; {wanted}") from error
        self.turn_eager(reason)
        warnings.warn(f"engine.compile: runs eager: {reason}", RuntimeWarning, stacklevel=4)

    def _run_graph(self, graph: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a graph; its results outlive the next call."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=_COMPILER_MODULES)
            out = graph(*args, **kwargs)
        if self.mode in (COMPILE_DEFAULT, COMPILE_AUTO):
            return out
        # CUDA graphs write their next results to the same memory.
        return tree_map(
            lambda leaf: leaf.clone() if _is_tensor(leaf) else leaf, out, is_leaf=_is_tensor
        )


def _own_code(function: Callable[..., R]) -> Callable[..., R]:
    """Return the function with a code object of its own.

    The compiler keeps its graphs, and their largest number, by code object, which all partial
    functions share.
    """

    def call(*args: Any, **kwargs: Any) -> R:
        return function(*args, **kwargs)

    return FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)


def _describe_failure(error: BaseException) -> str:
    """Return the first line of the error that the compiler met first, with its type."""
    while (cause := error.__cause__) is not None:
        error = cause
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
