"""Graphs on a CPU: operators recorded with their memory, and called again on the same memory.

    import torch
    from support.graph_recorder import GraphRecorder

    total, step = torch.zeros(3), torch.ones(3)
    replay = GraphRecorder().record(
        lambda: {"total": total + step}, {"total": total}
    )  # as `device.graphs` does
    replay()
    assert total.tolist() == [2.0, 2.0, 2.0]

Like a CUDA graph it reads and writes memory by address, allocates nothing when it is replayed, and
holds none of its
inputs.  Unlike one it names the mistake: memory that was freed, an input that was bound to other
memory, a number or
shape that differs from pass to pass, a buffer that misses its value, a read of a value by the host.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from morphogen.device.graphs import Leaves, write_back
from morphogen.device.host_reads import reads_host
from morphogen.testing.audit import LIBRARY_PATHS


class ReplayFault(AssertionError):
    """A graph that does not compute what a pass computes."""


@dataclass(frozen=True, slots=True)
class _Input:
    """Memory from outside the graph, which the graph does not hold."""

    storage: StorageWeakRef
    form: tuple[Any, ...]  # dtype, offset, shape, strides

    def resolve(self) -> Tensor | None:
        """Return the tensor, or None if its memory was freed."""
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        dtype, *place = self.form
        return (
            None
            if storage is None
            else torch.empty(0, dtype=dtype, device="cpu").set_(storage, *place)
        )


# Names of methods that leave the device.
HOST_READS = {"item", "cpu", "tolist", "numpy", "nonzero", "masked_select", "unique", "argwhere"}


@dataclass(slots=True)
class _Call:
    """One operator: its arguments, flat, with tensors as `_Input` or as tensors inside the graph;
    its results.
    """

    operator: Any
    arguments: list[Any]
    structure: Any
    results: list[Tensor | None]  # None: no tensor, or memory of an argument
    runs: bool  # False for a view
    location: str


def _location() -> str:
    """Return file and line of the innermost frame outside torch and this module; `audit` also reads
    the source line.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__
        or any(part in frame.f_code.co_filename for part in LIBRARY_PATHS)
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class _RefuseReads(TorchFunctionMode):
    """Mode that refuses reads of values which no operator shows, such as `tolist`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in HOST_READS:
            raise RuntimeError(f"{func.__name__} reads a value on the host at {_location()}")
        return func(*args, **(kwargs or {}))


@dataclass
class _Tape(TorchDispatchMode):
    """Operators of one pass, with results that stay where they are."""

    calls: list[_Call] = field(default_factory=list)
    inside: dict[int, Tensor] = field(default_factory=dict)  # memory of the graph, by key
    outside: dict[int, StorageWeakRef] = field(default_factory=dict)
    # inputs written to, and their old values
    before: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run and record an operator."""
        if torch.Tag.inplace_view in func.tags:  # changes no memory
            return func(*args, **(kwargs or {}))
        if reads_host(func, args, kwargs or {}):
            raise RuntimeError(f"{func} reads a value on the host at {_location()}")
        flat, structure = tree_flatten((args, kwargs or {}))
        arguments = [self._refer(item) if isinstance(item, Tensor) else item for item in flat]
        for tensor in _write_targets(func, args, kwargs or {}):
            if _key(tensor) in self.outside and _key(tensor) not in self.before:
                whole = _whole(tensor)
                self.before[_key(tensor)] = whole, whole.clone()
        out = func(*args, **(kwargs or {}))
        results = [
            self._keep(item) if isinstance(item, Tensor) else None for item in tree_flatten(out)[0]
        ]
        runs = func._schema.is_mutable or any(result is not None for result in results)
        self.calls.append(_Call(func, arguments, structure, results, runs, _location()))
        return out

    def _refer(self, tensor: Tensor) -> Tensor | _Input:
        key = _key(tensor)
        if key in self.inside:
            return tensor.detach()
        if key not in self.outside:
            self.outside[key] = StorageWeakRef(tensor.untyped_storage())
        return _Input(self.outside[key], _form(tensor))

    def _keep(self, tensor: Tensor) -> Tensor | None:
        """Return a result in new memory, which the graph holds from now on; None for memory that is
        known.
        """
        key = _key(tensor)
        if key in self.inside or key in self.outside:
            return None
        self.inside[key] = tensor.detach()
        return self.inside[key]

    def rewind(self) -> None:
        """Restore inputs that were written to: recording runs nothing."""
        for tensor, old in self.before.values():
            tensor.copy_(old)
        self.before.clear()


def _whole(tensor: Tensor) -> Tensor:
    """Return the bytes of the memory of a tensor."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(tensor.untyped_storage())


def _write_targets(func: Any, args: tuple, kwargs: dict) -> Iterator[Tensor]:
    """Yield the arguments that an operator writes to."""
    named = {argument.name: argument for argument in func._schema.arguments}
    values = dict(zip(named, args, strict=False)) | kwargs
    for name, value in values.items():
        if named[name].alias_info is not None and named[name].alias_info.is_write:
            yield from (item for item in tree_flatten(value)[0] if isinstance(item, Tensor))


class GraphRecorder:
    """Recorder of graphs with the interface of `device.graphs.CudaGraphs`.

    Attributes: `graphs`, recorded so far; `replays` so far; `operators`, calls of operators in the
    last graph.

    Args:
        verify: before each replay, run the pass and compare it with the graph, operator by
            operator; after it, compare the buffers.  The recorder then holds the pass, and with it
            all inputs.

    Raises: ReplayFault from a replay; RuntimeError from `record` for what no graph can hold.

    Example:
        >>> import torch
        >>> from support.graph_recorder import GraphRecorder
        >>> total, numbers = torch.zeros(2), torch.ones(2)
        >>> replay = GraphRecorder().record(lambda: {"total": total + numbers}, {"total": total})
        >>> replay(), total
        (None, tensor([2., 2.]))
    """

    fewest_passes = 4

    def __init__(self, *, verify: bool = True) -> None:
        self.verify = verify
        self.graphs = self.replays = self.operators = 0

    def stream(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def record(self, step: Callable[[], Leaves], buffers: Leaves) -> Callable[[], None]:
        """Record `buffers := step()` and run it once; return the function that runs it again."""
        tape = _Tape()
        try:
            with _RefuseReads(), tape:
                values = step()
                if tape.before:
                    raise RuntimeError("the pass writes to its input")
                checked = (
                    _VerifiedPass(tape, len(tape.calls), step, buffers) if self.verify else None
                )
                write_back(buffers, values)
        finally:
            tape.rewind()
        self.graphs += 1
        self.operators = sum(call.runs for call in tape.calls)

        def replay() -> None:
            self.replays += 1
            with nullcontext() if checked is None else checked.compare():
                _replay(tape)

        replay()
        return replay


@torch.no_grad()
def _replay(tape: _Tape) -> None:
    """Call the operators of a tape on their memory.  Raises ReplayFault for memory that was
    freed.
    """
    for position, call in enumerate(tape.calls):
        if not call.runs:
            continue
        arguments = [
            item.resolve() if isinstance(item, _Input) else item for item in call.arguments
        ]
        freed = [
            old
            for new, old in zip(arguments, call.arguments, strict=True)
            if new is None and old is not None
        ]
        if freed:
            raise ReplayFault(
                f"{_title(position, call)} reads freed memory: {_describe(freed[0].form)}"
            )
        args, kwargs = tree_unflatten(arguments, call.structure)
        out = tree_flatten(call.operator(*args, **kwargs))[0]
        for result, new in zip(call.results, out, strict=True):
            if result is not None:
                result.copy_(new)


def _title(position: int, call: _Call) -> str:
    return f"operator {position}, {call.operator}, at {call.location},"


def _describe(form: tuple[Any, ...]) -> str:
    return f"{form[0]} {list(form[2])}".removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class _VerifiedPass:
    """A pass, to be compared with its graph."""

    tape: _Tape
    length: int  # calls of the pass itself
    step: Callable[[], Leaves]
    buffers: Leaves

    @contextmanager
    def compare(self) -> Iterator[None]:
        """Run the pass, then the block, which replays the graph; compare operators and results."""
        fresh = _Tape()
        with fresh:
            values = self.step()
        expected = {name: value.clone() for name, value in values.items()}
        if len(fresh.calls) != self.length:
            raise ReplayFault(
                f"the pass calls {len(fresh.calls)} operators, the graph {self.length}"
            )
        for position, (call, now) in enumerate(zip(self.tape.calls, fresh.calls, strict=False)):
            _compare_calls(_title(position, call), call, now)
        yield
        for name, buffer in self.buffers.items():
            if not torch.equal(_bits(buffer), _bits(expected[name])):
                raise ReplayFault(
                    f"{name}: the graph leaves another value in its buffer than the pass returns"
                )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _compare_calls(title: str, call: _Call, now: _Call) -> None:
    """Compare an operator of the graph with a later pass.  Raises ReplayFault."""
    if call.operator is not now.operator or call.structure != now.structure:
        raise ReplayFault(f"{title} is {now.operator} in this pass: the graph has other operators")
    for old, new in zip(call.arguments, now.arguments, strict=True):
        if isinstance(old, _Input | Tensor) != isinstance(new, _Input | Tensor):
            raise ReplayFault(f"{title} gets a number and a tensor in turn")
        if not isinstance(old, _Input | Tensor):
            if old != new:
                raise ReplayFault(
                    f"{title} gets {new!r} in this pass: the number {old!r} of the graph is "
                    "constant"
                )
            continue
        forms = [item.form if isinstance(item, _Input) else _form(item) for item in (old, new)]
        if forms[0] != forms[1]:
            raise ReplayFault(
                f"{title} gets {_describe(forms[1])} in this pass, {_describe(forms[0])} in "
                "the graph"
            )
        if isinstance(old, _Input) and (
            not isinstance(new, _Input) or old.storage.cdata != new.storage.cdata
        ):
            raise ReplayFault(
                f"{title} reads other memory in this pass: its input was rebound, not written to"
            )
