"""Capture: the loop of an epoch, recorded once and replayed.

The shapes of an epoch follow its plan, so a graph serves one epoch.  The first pass of a loop runs
as it is: it is real work, and it sets up what a graph cannot (constant tables, libraries).  The
second is recorded and run, and replayed until the loop ends.  Leaves of the carried state that a
pass changes live in buffers which every replay reads and overwrites; all others are read where they
are.  So the body has to be a function of tensors: a number that changes from pass to pass is a leaf
of the state.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from morphogen.compat import tree_flatten, tree_unflatten
from morphogen.config.execution_spec import CAPTURE_OFF
from morphogen.config.registry import extra_parts
from morphogen.device.graphs import Leaves, cuda_graphs, write_back
from morphogen.env.setup import Setup

C = TypeVar("C")


class Graphs(Protocol):
    """Maker of graphs: `device.graphs.CudaGraphs`, or one that an extra offers at the entry points
    `morphogen.graphs` under the type of its device.
    """

    fewest_passes: int  # of a loop for which recording pays

    def stream(self) -> AbstractContextManager[None]:
        """Context of the first pass, of recording and of all replays."""
        ...

    def record(self, step: Callable[[], Leaves], buffers: Leaves) -> Callable[[], None]:
        """Record `buffers := step()` and run it once; return the function that runs it again.

        The caller keeps alive what `step` reads.  Raises: RuntimeError for a step that cannot be
        recorded; the buffers are then as they were.
        """
        ...


def _nothing() -> None:
    pass


class Capture:
    """Loops of one run, replayed from graphs; without graphs every pass runs as it is.

    Attributes: `recorded`, graphs so far; `fallbacks`, loops so far that no graph could hold.
    """

    def __init__(self, graphs: Graphs | None = None) -> None:
        self.recorded = self.fallbacks = 0
        self._graphs = graphs

    def repeat(
        self, body: Callable[[C], C], carry: C, times: int, /, before: Callable[[], None] = _nothing
    ) -> C:
        """Call `body` on the carry, then on its result, `times` times in all; return the last
        result.

        Args:
            body: pure function of tensors; it returns a leaf unchanged, the same object, or with
            its shape and dtype.
            carry: tree of tensors.
            before: called before each pass on the host, such as to fill memory that the body reads.
        """
        if (
            self._graphs is None
            or times < self._graphs.fewest_passes
            or torch.compiler.is_compiling()
        ):
            # a graph of the compiler holds the passes itself
            return _run(body, carry, times, before)
        with self._graphs.stream():
            first = _run(body, carry, 1, before)
            before()
            try:
                state, replay = _record(self._graphs, body, carry, first)
            except RuntimeError as error:
                self._report(error)
                return _run(body, body(first), times - 2, before)
            self.recorded += 1
            for _ in range(times - 2):  # `body` and `state` hold what the graph reads
                before()
                replay()
            return state

    def _report(self, error: RuntimeError) -> None:
        """Count a loop that runs as it is; warn of the first one."""
        if not self.fallbacks:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            warnings.warn(
                f"engine.capture: runs without a graph: {reason}", RuntimeWarning, stacklevel=3
            )
        self.fallbacks += 1


def open_capture(setup: Setup) -> Capture:
    """Return the capture of a run: graphs, unless `engine.capture` is off."""
    if setup.spec.engine.capture == CAPTURE_OFF:
        return Capture()
    if setup.device.type == "cuda":
        return Capture(cuda_graphs(setup.device))
    offered = extra_parts("morphogen.graphs").get(setup.device.type)
    return Capture(offered and offered())


def _run(body: Callable[[C], C], carry: C, times: int, before: Callable[[], None]) -> C:
    for _ in range(times):
        before()
        carry = body(carry)
    return carry


def _record(
    graphs: Graphs, body: Callable[[C], C], carry: C, first: C
) -> tuple[C, Callable[[], None]]:
    """Record and run a pass that starts from `first`, the result of a pass on `carry`.

    Returns: the carry in its buffers, and the function that runs another pass on it.
    """
    leaves, structure = tree_flatten(first)
    before, _ = tree_flatten(carry)
    buffers = {
        i: _buffer(i, new)
        for i, (new, old) in enumerate(zip(leaves, before, strict=True))
        if new is not old
    }
    write_back(buffers, dict(enumerate(leaves)))
    static = [buffers.get(i, leaf) for i, leaf in enumerate(leaves)]
    state: Any = tree_unflatten(static, structure)

    def step() -> Leaves:
        after, found = tree_flatten(body(state))
        if found != structure:
            raise RuntimeError(
                f"the second pass returns another tree: expected {structure}, got {found}"
            )
        for i, (old, new) in enumerate(zip(static, after, strict=True)):
            if new is not old and not (i in buffers and _same_form(new, old)):
                raise RuntimeError(
                    f"leaf {i}: expected the leaf of the first pass or one of its form, got another"
                )
        return {i: after[i] for i in buffers}

    return state, graphs.record(step, buffers)


def _same_form(new: Any, old: Any) -> bool:
    return (new.shape, new.dtype) == (old.shape, old.dtype)


def _buffer(index: int, leaf: Any) -> Tensor:
    if not isinstance(leaf, Tensor):
        raise RuntimeError(
            f"leaf {index}: expected a tensor, or an object that no pass changes, got "
            f"{type(leaf).__name__}"
        )
    return torch.empty_like(leaf)
