"""Compilation: the one place that calls the compiler, and the bookkeeping of its graphs.

Fixed units have one graph each.  Training and validation have one per *signature*, the capacity of a plan for rows.
Plans hardly ever repeat, and compiling a graph takes as long as hundreds of epochs, so graphs are compiled per round.
After each of the first rounds with a plan beyond all capacities, both units get a signature for all plans of the round
and all earlier signatures, with a margin (`nets.plan`).  A plan beyond the newest signature runs eager.  After these
rounds no signature is added, so that no late round waits for the compiler.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from tensordict import TensorClass, TensorDictBase
from torch._dynamo import config
from torch._dynamo.utils import counters
from torch._inductor import list_mode_options
from torch.utils._pytree import tree_map

from morphogen.config.execution_spec import COMPILE_DEFAULT, COMPILE_OFF, EngineSpec
from morphogen.errors import CheckpointError
from morphogen.nets.plan import Plan, build_plan, build_slot_plans, capacity, join_plans, pad_plan, plan_sizes
from morphogen.telemetry.round_summary import NO_COMPILES, CompileStats

_COMPILER_MODULES = r"torch\.|tensordict\."  # modules whose compiler warnings concern only library code
# `is_tensor_collection` caches classes, which graphs would guard on.
_TENSOR_TYPES = (torch.Tensor, TensorDictBase, TensorClass)
EAGER = EngineSpec(compile=COMPILE_OFF)
CPU = torch.device("cpu")
R = TypeVar("R")
Compiler = Callable[..., Callable[..., Any]]
COMPILER: Compiler = torch.compile
SIGNATURE_ROUNDS = 4  # first rounds that may add signatures; the next round compiles them
_REALIZE_SOONER = {"realize_reads_threshold": 1, "realize_opcount_threshold": 6}
_CPP_WRAPPER = {"cpp_wrapper": True}  # calls kernels from C++: on a CPU a Python call costs as much as many kernels
_NARROW_SIMD = {"cpp.simdlen": 256}  # bits: 8 floats; small networks have 8 channels, which would mask half of 16
_RECOMPILE_LIMIT = 2**20  # of the compiler; the number of graphs is limited here


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


class Signature(NamedTuple):
    """A unit and the sizes that its graph is compiled for."""

    unit: str  # train, validate
    sizes: tuple[int, ...]

    def covers(self, other: "Signature") -> bool:
        """Return True if every size is at least that of the other signature."""
        return all(a >= b for a, b in zip(self.sizes, other.sizes, strict=True))

    def merge(self, other: "Signature") -> "Signature":
        """Return the smallest signature that covers both."""
        return Signature(self.unit, tuple(map(max, self.sizes, other.sizes)))


def _signatures_of(plan: Plan) -> tuple[Signature, Signature]:
    return Signature("train", capacity(plan.train)), Signature("validate", (*capacity(plan.evaluate), *plan.rows))


class FittedPlan(NamedTuple):
    """A padded plan and the signatures of its units; None: the unit runs eager."""

    plan: Plan
    train: Signature | None
    validate: Signature | None


class PaddingState(NamedTuple):
    """State that decides the padding of the next plans."""

    signatures: tuple[Signature, ...]  # oldest first
    seen: tuple[tuple[int, ...], ...]  # sizes of the union of all plans of this round; empty before the first
    short: bool  # some plan of this round exceeded every signature


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
        self.signatures: list[Signature] = []
        self.totals = NO_COMPILES
        self._compiler, self._clock = compiler, clock
        self._round_plans: list[Plan] = []  # the union of all plans of this round
        self._fell_back = False  # some plan of this round exceeded every signature
        self._units: dict[str | Signature, Callable[..., Any]] = {}

    def padding_state(self) -> PaddingState:
        """Return the state that a resumed run needs to pad as before."""
        sizes = tuple(map(plan_sizes, self._round_plans))
        return PaddingState(tuple(self.signatures), sizes[0] if sizes else (), self._fell_back)

    def restore(self, state: PaddingState, like: Plan) -> None:
        """Restore the padding of another process.  Raises CheckpointError for sizes of plans unlike `like`."""
        lengths = {signature.unit: len(signature.sizes) for signature in _signatures_of(like)}
        fitting = all(lengths.get(signature.unit) == len(signature.sizes) for signature in state.signatures)
        if not fitting or (
            state.seen and [len(part) for part in state.seen] != [len(part) for part in plan_sizes(like)]
        ):
            raise CheckpointError("shared.compiled: expected sizes of plans for the hosts of this run, got others")
        self.signatures, self._fell_back = list(state.signatures), state.short
        self._round_plans = [build_plan(*state.seen)] if state.seen else []

    def fit(self, plan: Plan) -> FittedPlan:
        """Pad a plan to the newest signatures that cover it; unchanged for units that run eager."""
        if self.spec.compile == COMPILE_OFF:
            return FittedPlan(plan, None, None)
        self._round_plans = [join_plans([*self._round_plans, plan])]
        train, judge = (self._newest_signature(needed) for needed in _signatures_of(plan))
        short = train is None or judge is None
        self._fell_back |= short
        self._count(graph_fallbacks=int(short))
        levels = len(plan.rows)
        fitted = Plan(
            train=plan.train if train is None else build_slot_plans(train.sizes),
            evaluate=plan.evaluate if judge is None else build_slot_plans(judge.sizes[:-levels]),
            births=plan.births,
            rows=plan.rows if judge is None else judge.sizes[-levels:],
            padded=train is not None or judge is not None,
            position=plan.position,
        )
        return FittedPlan(fitted, train, judge)

    def _newest_signature(self, required: Signature) -> Signature | None:
        """Return the newest signature of the unit if it covers the required one."""
        newest = next((signature for signature in reversed(self.signatures) if signature.unit == required.unit), None)
        return newest if newest is not None and newest.covers(required) else None

    def end_round(self, round: int, envs: int) -> None:
        """End a round; add signatures that cover it and all earlier ones if a plan fell back and the limit allows."""
        if self._fell_back and round < SIGNATURE_ROUNDS:
            for signature in _signatures_of(pad_plan(self._round_plans[0], envs)):
                for older in self.signatures:
                    signature = signature.merge(older) if older.unit == signature.unit else signature
                if signature not in self.signatures and len(self.signatures) < self.spec.max_graphs:
                    self.signatures.append(signature)
        self._round_plans, self._fell_back = [], False

    def unit(self, key: str | Signature | None, function: Callable[..., R]) -> Callable[..., R]:
        """Return the compiled function of a key, compiled on first use; the function itself if it runs eager."""
        if key is None or self.spec.compile == COMPILE_OFF:
            return function
        if key not in self._units:
            options = compiler_options(self.device.type, self.spec.compile)
            graph = self._compiler(function, fullgraph=True, dynamic=False, options=options)
            self._units[key] = partial(self._call_unit, graph)
        return self._units[key]

    def _call_unit(self, graph: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a compiled unit; count and time the call if it compiles a graph."""
        before, started = counters["stats"]["unique_graphs"], self._clock()
        with (
            config.patch(recompile_limit=_RECOMPILE_LIMIT, accumulated_recompile_limit=_RECOMPILE_LIMIT),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", module=_COMPILER_MODULES)
            out = graph(*args, **kwargs)
            if self.spec.compile != COMPILE_DEFAULT:  # CUDA graphs write their next results to the same memory
                out = tree_map(lambda leaf: leaf.clone() if _is_tensor(leaf) else leaf, out, is_leaf=_is_tensor)
        graphs = counters["stats"]["unique_graphs"] - before
        if graphs:
            self._count(graphs=graphs, compile_s=self._clock() - started)
        return out

    def _count(self, *, graphs: int = 0, graph_fallbacks: int = 0, compile_s: float = 0.0) -> None:
        so_far = self.totals
        self.totals = CompileStats(
            so_far.graphs + graphs, so_far.graph_fallbacks + graph_fallbacks, so_far.compile_s + compile_s
        )
