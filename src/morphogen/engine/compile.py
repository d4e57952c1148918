"""Compilation: the one place that calls the compiler, and the bookkeeping of its graphs.

Fixed units have one graph each.  Training and validation have one per *signature*, the room that a plan has for rows.
Plans hardly ever repeat, and making a graph takes as long as hundreds of epochs; so graphs are made for rounds, not for
plans.  After each of the first rounds in which some plan found no room, both units get a signature with room for all
plans of the round, for all that had room before, and some to spare (`nets.plan`).  A plan without room in the newest
one runs eager.  After these rounds nothing new is compiled, so that no late round stops for a graph.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import TensorClass, TensorDictBase
from torch._dynamo import config
from torch._dynamo.utils import counters
from torch._inductor import list_mode_options
from torch.utils._pytree import tree_map

from morphogen.config.groups import COMPILE_DEFAULT, COMPILE_OFF, EngineSpec
from morphogen.errors import CheckpointError
from morphogen.nets.plan import Plan, build_slot_plans, capacity, join_plans, pad_plan
from morphogen.telemetry.round_summary import NO_COMPILES, CompileStats

_COMPILER_MODULES = r"torch\.|tensordict\."  # whose warnings, on what it meets in the code of libraries, help nobody
_TENSOR_TYPES = (
    torch.Tensor,
    TensorDictBase,
    TensorClass,
)  # `is_tensor_collection` remembers classes, which graphs guard on
EAGER = EngineSpec(compile=COMPILE_OFF)
SIGNATURE_ROUNDS = (
    4  # first rounds, after each of which new signatures can be made; the round that follows compiles them
)
_REALIZE_SOONER = {"realize_reads_threshold": 1, "realize_opcount_threshold": 6}
_CPP_WRAPPER = {"cpp_wrapper": True}  # kernels are called from C++, which on a CPU saves as much as many of them take
_NARROW_SIMD = {
    "cpp.simdlen": 256
}  # bits: 8 numbers, as many as the channels of a small network, where 16 would be masked
_RECOMPILE_LIMIT = (
    2**20
)  # graphs of one piece of code that the compiler puts up with; how many there are is decided here


def compiler_options(device: str, mode: str = COMPILE_DEFAULT) -> dict[str, Any]:
    """Options of the compiler for a kind of device, on top of a mode of `torch.compile` (plain = none).

    It copies what is cheap into every place that needs it.  Where rows are chosen that means number by number, once per
    choice; so results that are used twice are written to memory sooner than it would.
    """
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    called = {**_CPP_WRAPPER, **(_NARROW_SIMD if wide else {})} if device == "cpu" else {}
    return {**_REALIZE_SOONER, **called, **({} if mode == COMPILE_DEFAULT else list_mode_options(mode))}


def _copy_tensor(leaf: Any) -> Any:
    """A copy: the other modes run CUDA graphs, which write their next results to the same memory."""
    return leaf.clone() if isinstance(leaf, _TENSOR_TYPES) else leaf


def _is_tensor(node: Any) -> bool:
    return isinstance(node, _TENSOR_TYPES)


class Signature(NamedTuple):
    """A unit and the sizes that its graph is made for."""

    unit: str  # train, validate
    sizes: tuple[int, ...]

    def covers(self, other: "Signature") -> bool:
        """Return whether every size is at least that of the other signature."""
        return all(a >= b for a, b in zip(self.sizes, other.sizes, strict=True))

    def merge(self, other: "Signature") -> "Signature":
        """The smallest that holds both."""
        return Signature(self.unit, tuple(map(max, self.sizes, other.sizes)))


def _signatures_of(plan: Plan) -> tuple[Signature, Signature]:
    """The sizes of a plan, for training and for validation."""
    return Signature("train", capacity(plan.train)), Signature("validate", (*capacity(plan.evaluate), *plan.rows))


def _sizes(plan: Plan) -> tuple[tuple[int, ...], ...]:
    return capacity(plan.train), capacity(plan.evaluate), plan.births, plan.rows


def _plan_from_sizes(
    train: tuple[int, ...], evaluate: tuple[int, ...], births: tuple[int, ...], rows: tuple[int, ...]
) -> Plan:
    """The inverse of `_sizes`."""
    return Plan(build_slot_plans(train), build_slot_plans(evaluate), births, rows, padded=True)


class FittedPlan(NamedTuple):
    """A plan as it is run; None where the unit runs eager."""

    plan: Plan
    train: Signature | None
    validate: Signature | None


class PaddingState(NamedTuple):
    """State that decides the padding of the next plans."""

    signatures: tuple[Signature, ...]  # in the order in which they were made
    seen: tuple[tuple[int, ...], ...]  # sizes of the plan with room for all of this round; none yet: empty
    short: bool  # some plan of this round found no room


class CompiledUnits:
    """The compiled units of one run; with the default spec nothing is compiled."""

    def __init__(
        self,
        spec: EngineSpec = EAGER,
        *,
        compiler: Callable[..., Callable] = torch.compile,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.spec = spec
        self.signatures: list[Signature] = []
        self.totals = NO_COMPILES
        self._compiler, self._clock = compiler, clock
        self._round_plans: list[Plan] = []  # of this round: what all plans needed together
        self._fell_back = False  # some plan of this round found no room
        self._units: dict[str | Signature, Callable] = {}

    def padding_state(self) -> PaddingState:
        """Return the state that a resumed run needs to pad as before."""
        seen = tuple(_sizes(plan) for plan in self._round_plans)
        return PaddingState(tuple(self.signatures), seen[0] if seen else (), self._fell_back)

    def restore(self, state: PaddingState, like: Plan) -> None:
        """Go on with what another process knew.  What is not made for plans `like` this one is a CheckpointError."""
        lengths = {one.unit: len(one.sizes) for one in _signatures_of(like)}
        fitting = all(lengths.get(one.unit) == len(one.sizes) for one in state.signatures)
        if not fitting or (state.seen and [len(part) for part in state.seen] != [len(part) for part in _sizes(like)]):
            raise CheckpointError("shared.compiled holds sizes of other plans; want those of the hosts of this run")
        self.signatures, self._fell_back = list(state.signatures), state.short
        self._round_plans = [_plan_from_sizes(*state.seen)] if state.seen else []

    def fit(self, plan: Plan, envs: int) -> FittedPlan:
        """The plan in the sizes of the newest signatures where they have room; exact where it runs eager."""
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
        )
        return FittedPlan(fitted, train, judge)

    def _newest_signature(self, required: Signature) -> Signature | None:
        """The newest signature of the unit, if it has room."""
        one = next((one for one in reversed(self.signatures) if one.unit == required.unit), None)
        return one if one is not None and one.covers(required) else None

    def end_round(self, round: int, envs: int) -> None:
        """The end of a round: new signatures where one of its plans found no room."""
        if self._fell_back and round < SIGNATURE_ROUNDS:
            for wanted in _signatures_of(pad_plan(self._round_plans[0], envs)):
                self._add_signature(wanted)
        self._round_plans, self._fell_back = [], False

    def _add_signature(self, wanted: Signature) -> None:
        """A signature with room for this and for all before, unless there is one or no more may be."""
        for one in self.signatures:
            wanted = wanted.merge(one) if one.unit == wanted.unit else wanted
        if wanted not in self.signatures and len(self.signatures) < self.spec.max_graphs:
            self.signatures.append(wanted)

    def unit(self, key: str | Signature | None, function: Callable) -> Callable:
        """The compiled form of a function, made where the key is new; the function itself where nothing is compiled."""
        if key is None or self.spec.compile == COMPILE_OFF:
            return function
        if key not in self._units:
            told = compiler_options(self.spec.devices[0].partition(":")[0], self.spec.compile)
            graph = self._compiler(function, fullgraph=True, dynamic=False, options=told)
            self._units[key] = partial(self._call_unit, graph)
        return self._units[key]

    def _call_unit(self, graph: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """A call of a compiled unit; one that makes a graph is counted and timed."""
        before, started = counters["stats"]["unique_graphs"], self._clock()
        with (
            config.patch(recompile_limit=_RECOMPILE_LIMIT, accumulated_recompile_limit=_RECOMPILE_LIMIT),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", module=_COMPILER_MODULES)
            out = graph(*args, **kwargs)
            out = out if self.spec.compile == COMPILE_DEFAULT else tree_map(_copy_tensor, out, is_leaf=_is_tensor)
        made = counters["stats"]["unique_graphs"] - before
        if made:
            self._count(graphs=made, compile_s=self._clock() - started)
        return out

    def _count(self, **increments: float) -> None:
        self.totals = CompileStats(*(a + b for a, b in zip(self.totals, CompileStats(**increments), strict=True)))
