"""What is compiled: the one place that calls the compiler, and the book of its graphs.

Fixed units have one graph each.  Training and validation have one per *signature*, the room that a plan has for rows.
Plans hardly ever repeat, and making a graph takes as long as hundreds of epochs; so graphs are made for rounds, not for
plans.  After each of the first rounds in which some plan found no room, both units get a signature with room for all
plans of the round, for all that had room before, and some to spare (`nets.padding`).  A plan without room in the newest
one runs eager.  After these rounds nothing new is compiled, so that no late round stops for a graph.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import TensorClass, TensorDictBase
from torch._dynamo import config
from torch._dynamo.utils import counters
from torch._inductor import list_mode_options
from torch.utils._pytree import tree_map

from morphogen.nets.padding import crews_of, joined, padded, room
from morphogen.nets.plan import Plan
from morphogen.run.telemetry.summary import NOTHING, Compiling
from morphogen.vocab.groups import OFF, PLAIN, EngineSpec

_COMPILER = r"torch\.|tensordict\."  # whose warnings, on what it meets in the code of libraries, help nobody
_TREES = (torch.Tensor, TensorDictBase, TensorClass)  # `is_tensor_collection` remembers classes, which graphs guard on
EAGER = EngineSpec(compile=OFF)
LOOKING = 4  # first rounds, after each of which new signatures can be made; the round that follows compiles them
_WRITTEN = {"realize_reads_threshold": 1, "realize_opcount_threshold": 6}
_CALLED = {"cpp_wrapper": True}  # kernels are called from C++, which on a CPU saves as much as many of them take
_LIMIT = 2**20  # graphs of one piece of code that the compiler puts up with; how many there are is decided here


def options(device: str, mode: str = PLAIN) -> dict[str, Any]:
    """What the compiler is told for a kind of device, on top of a mode of `torch.compile` (plain = none).

    It copies what is cheap into every place that needs it.  Where rows are chosen that means number by number, once per
    choice; so results that are used twice are written to memory sooner than it would.
    """
    called = _CALLED if device == "cpu" else {}
    return {**_WRITTEN, **called, **({} if mode == PLAIN else list_mode_options(mode))}


def _own(leaf: Any) -> Any:
    """A copy: the other modes run CUDA graphs, which write their next results to the same memory."""
    return leaf.clone() if isinstance(leaf, _TREES) else leaf


def _whole(node: Any) -> bool:
    return isinstance(node, _TREES)


class Signature(NamedTuple):
    """A unit and the sizes that its graph is made for."""

    unit: str  # train, validate
    sizes: tuple[int, ...]

    def holds(self, other: "Signature") -> bool:
        """Whether there is room for everything of the other."""
        return all(a >= b for a, b in zip(self.sizes, other.sizes, strict=True))

    def with_room(self, other: "Signature") -> "Signature":
        """The smallest that holds both."""
        return Signature(self.unit, tuple(map(max, self.sizes, other.sizes)))


def _signatures(plan: Plan) -> tuple[Signature, Signature]:
    """The sizes of a plan, for training and for validation."""
    return Signature("train", room(plan.train)), Signature("validate", (*room(plan.evaluate), *plan.rows))


class Fitted(NamedTuple):
    """A plan as it is run; None where the unit runs eager."""

    plan: Plan
    train: Signature | None
    validate: Signature | None


class Compiled:
    """The compiled units of one run; with the default spec nothing is compiled."""

    def __init__(
        self,
        spec: EngineSpec = EAGER,
        *,
        compiler: Callable[..., Callable] = torch.compile,
        clock: Callable[[], float] = time.perf_counter,
        signatures: Sequence[tuple[str, Sequence[int]]] = (),
    ) -> None:
        """`signatures`: those of a run that is continued, in their order, so that it pads as before."""
        self.spec = spec
        self.signatures = [Signature(unit, tuple(sizes)) for unit, sizes in signatures]
        self.done = NOTHING
        self._compiler, self._clock = compiler, clock
        self._seen: list[Plan] = []  # of this round: what all plans needed together
        self._short = False  # some plan of this round found no room
        self._units: dict[str | Signature, Callable] = {}

    def fit(self, plan: Plan, envs: int) -> Fitted:
        """The plan in the sizes of the newest signatures where they have room; exact where it runs eager."""
        if self.spec.compile == OFF:
            return Fitted(plan, None, None)
        self._seen = [joined([*self._seen, plan])]
        train, judge = (self._newest(needed) for needed in _signatures(plan))
        short = train is None or judge is None
        self._short |= short
        self._book(graph_fallbacks=int(short))
        levels = len(plan.rows)
        fitted = Plan(
            train=plan.train if train is None else crews_of(train.sizes),
            evaluate=plan.evaluate if judge is None else crews_of(judge.sizes[:-levels]),
            births=plan.births,
            rows=plan.rows if judge is None else judge.sizes[-levels:],
            padded=train is not None or judge is not None,
        )
        return Fitted(fitted, train, judge)

    def _newest(self, needed: Signature) -> Signature | None:
        """The newest signature of the unit, if it has room."""
        one = next((one for one in reversed(self.signatures) if one.unit == needed.unit), None)
        return one if one is not None and one.holds(needed) else None

    def learn(self, round: int, envs: int) -> None:
        """The end of a round: new signatures where one of its plans found no room."""
        if self._short and round < LOOKING:
            for wanted in _signatures(padded(self._seen[0], envs)):
                self._admit(wanted)
        self._seen, self._short = [], False

    def _admit(self, wanted: Signature) -> None:
        """A signature with room for this and for all before, unless there is one or no more may be."""
        for one in self.signatures:
            wanted = wanted.with_room(one) if one.unit == wanted.unit else wanted
        if wanted not in self.signatures and len(self.signatures) < self.spec.max_graphs:
            self.signatures.append(wanted)

    def unit(self, key: str | Signature | None, function: Callable) -> Callable:
        """The compiled form of a function, made where the key is new; the function itself where nothing is compiled."""
        if key is None or self.spec.compile == OFF:
            return function
        if key not in self._units:
            told = options(self.spec.devices[0].partition(":")[0], self.spec.compile)
            graph = self._compiler(function, fullgraph=True, dynamic=False, options=told)
            self._units[key] = partial(self._booked, graph)
        return self._units[key]

    def _booked(self, graph: Callable, /, *args: Any, **knobs: Any) -> Any:
        """A call of a compiled unit; one that makes a graph is counted and timed."""
        before, started = counters["stats"]["unique_graphs"], self._clock()
        with config.patch(recompile_limit=_LIMIT, accumulated_recompile_limit=_LIMIT), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=_COMPILER)
            out = graph(*args, **knobs)
            out = out if self.spec.compile == PLAIN else tree_map(_own, out, is_leaf=_whole)
        made = counters["stats"]["unique_graphs"] - before
        if made:
            self._book(graphs=made, compile_s=self._clock() - started)
        return out

    def _book(self, **more: float) -> None:
        self.done = Compiling(*(a + b for a, b in zip(self.done, Compiling(**more), strict=True)))
