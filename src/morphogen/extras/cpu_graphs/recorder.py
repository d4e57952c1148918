"""Recorder of passes on a CPU, and the plan of the memory that their results share."""

import enum
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from morphogen.compat import (
    UnguardedMode,
    is_composite,
    schema_arguments,
    storage_key,
    tree_flatten,
    unchecked_operator,
)
from morphogen.device.graphs import Leaves, write_back
from morphogen.device.host_reads import reads_host
from morphogen.kernels.native import KERNELS, observe_kernels, to_kernel_arg

_ALIGNMENT = 64  # bytes, as the allocator of torch

_Call = tuple[Callable, Any, dict[str, Any]]  # with positional and named arguments


class CpuGraphs:
    """Graphs of a CPU, one after the other."""

    fewest_passes = 8  # recording takes up to four passes, a replay down to a third of one

    def stream(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def record(self, step: Callable[[], Leaves], buffers: Leaves) -> "CpuGraph":
        """Run and record `buffers := step()`; return the function that runs it again.

        Raises: RuntimeError for a step that reads a value on the host or writes to its input; the
        buffers are then as they were.
        """
        tape = _Tape()
        with tape:
            values = step()
            tape.buffers_only = False
            write_back(buffers, values)
        return tape.bind()


@dataclass(frozen=True, slots=True)
class CpuGraph:
    """A recorded pass; call it to run the pass again."""

    calls: list[_Call]
    held: object  # memory that kernels read by address
    nbytes: int  # of memory for the results of the pass

    def __call__(self) -> None:
        """Run the pass."""
        with torch.no_grad():
            for call, args, kwargs in self.calls:
                call(*args, **kwargs)


@dataclass(slots=True, eq=False)
class Block:
    """Memory that a pass allocated."""

    storage: StorageWeakRef  # keeps the key of the storage from being used again
    nbytes: int
    first: int  # position of the call that allocates it
    last: int  # position of the last call that uses it
    offset: int = 0  # in memory of the graph

    @property
    def size(self) -> int:
        """Bytes up to the next address that a block may begin at."""
        return -(-self.nbytes // _ALIGNMENT) * _ALIGNMENT


class _Place(NamedTuple):
    """Tensor in memory that the pass allocated."""

    block: Block
    offset: int  # bytes within the block
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]


class _Kind(enum.Enum):
    """Effect of an operator on memory."""

    KERNEL = "kernel"  # a kernel of the project allocates and fills
    COMPOSITE = "composite"  # effect of other operators
    VIEW = "view"  # no effect
    EMPTY = "empty"  # allocates
    WRITE = "write"  # writes to its arguments
    RESULT = "result"  # allocates and fills


class _Form(NamedTuple):
    """Properties of an operator."""

    kind: _Kind
    written: frozenset[str]  # names of the arguments that it writes to
    into: Any  # form of the operator that fills given memory; None: it has no such form
    names: tuple[str, ...]  # arguments of that form that take the memory
    accepted: frozenset[str]  # all arguments of that form


# not declared as views
_VIEWS = {"_unsafe_view", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"}


@cache
def _form_of(operator: Any) -> _Form:
    name = operator.overloadpacket.__name__
    written = frozenset(
        arg.name
        for arg in schema_arguments(operator)
        if arg.alias_info is not None and arg.alias_info.is_write
    )
    kind = (
        _Kind.WRITE
        if written and torch.Tag.inplace_view not in operator.tags
        else _kind_of(operator, name)
    )
    into = _filling_form(operator) if kind is _Kind.RESULT else None
    arguments = [] if into is None else schema_arguments(into)
    names = tuple(arg.name for arg in arguments if arg.is_out)
    return _Form(kind, written, into, names, frozenset(arg.name for arg in arguments))


def _kind_of(operator: Any, name: str) -> _Kind:
    """Return the kind of an operator that writes to no memory of an argument."""
    if operator in KERNELS:
        return _Kind.KERNEL
    if is_composite(operator):
        return _Kind.COMPOSITE
    if operator.is_view or name in _VIEWS or torch.Tag.inplace_view in operator.tags:
        return _Kind.VIEW
    return _Kind.EMPTY if "empty" in name else _Kind.RESULT


def _filling_form(operator: Any) -> Any:
    """Return the overload with the same arguments that fills given memory, or None."""
    packet = operator.overloadpacket
    layout = {"dtype", "layout", "device", "pin_memory"}
    expected = [(arg.name, str(arg.type)) for arg in schema_arguments(operator)]
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = [
            (arg.name, str(arg.type)) for arg in schema_arguments(overload) if not arg.is_out
        ]
        fills = len(arguments) < len(schema_arguments(overload))
        without = [
            argument for argument in expected if argument[0] not in layout or argument in arguments
        ]
        if fills and arguments == without:
            return overload
    return None


class _Tape(UnguardedMode):
    """Record of the operators and kernels of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers_only = True
        self._calls: list[_Call] = []
        self._kernels: set[int] = set()  # positions of kernels among the calls
        self._blocks: dict[int, Block] = {}  # by key of the storage
        self._threads = torch.get_num_threads()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run and record an operator."""
        form = _form_of(func)
        kwargs = kwargs or {}
        if form.kind is _Kind.KERNEL:
            return self._run_kernel(func, args)
        if form.kind is _Kind.COMPOSITE:  # called below autograd, as within a kernel of the project
            with self:
                return func.decompose(*args, **kwargs)
        if form.kind is not _Kind.VIEW and reads_host(func, args, kwargs):
            raise RuntimeError(f"{func} reads a value on the host")
        if form.kind is _Kind.WRITE:
            if self.buffers_only:
                self._refuse_inputs(func, form, args, kwargs)
            self._add(unchecked_operator(func), args, kwargs)
        result = func(*args, **kwargs)
        if form.kind in (_Kind.EMPTY, _Kind.RESULT):
            results = result if isinstance(result, tuple | list) else (result,)
            self._allocate(results)
            if form.kind is _Kind.RESULT:
                self._add_result(func, form, args, kwargs, results)
        return result

    def bind(self) -> "CpuGraph":
        """Allocate the memory of the graph; return all calls on it."""
        memory = _Memory(plan_memory([*self._blocks.values()]))
        calls: list[_Call] = []
        for position, (call, args, kwargs) in enumerate(self._calls):
            place = memory.address if position in self._kernels else memory.tensor
            calls.append((call, _replace(args, place), _replace(kwargs, place)))
        return CpuGraph(calls, (memory, self._calls), memory.nbytes)

    def _run_kernel(self, func: Any, args: tuple) -> Any:
        """Run an operator of the project, and record its parts: copies of inputs, and
        kernels.
        """
        fill, shapes = KERNELS[func]
        results = shapes(*args)
        self._allocate(results if isinstance(results, tuple | list) else (results,))
        with self, observe_kernels(self._add_kernel):
            fill(results, *args)
        return results

    def _add_kernel(self, kernel: Callable, args: tuple) -> None:
        self._add(kernel, [0 if arg is None else arg for arg in args], {})
        self._kernels.add(len(self._calls) - 1)

    def _add_result(
        self, func: Any, form: _Form, args: tuple, kwargs: dict[str, Any], results: Sequence
    ) -> None:
        """Record an operator that fills its results, or copies them where it cannot."""
        if form.into is None or any(item is None for item in results):
            self._add(partial(_copy_results, unchecked_operator(func)), (results, args, kwargs), {})
            return
        into = dict(
            zip(
                form.names,
                results if len(form.names) == len(results) else (list(results),),
                strict=True,
            )
        )
        accepted = {name: value for name, value in kwargs.items() if name in form.accepted}
        self._add(unchecked_operator(form.into), args, accepted | into)

    def _add(self, call: Callable, args: Any, kwargs: dict[str, Any]) -> None:
        if (threads := torch.get_num_threads()) != self._threads:
            self._calls.append((torch.set_num_threads, (threads,), {}))
            self._threads = threads
        self._calls.append((call, _replace(args, self._refer), _replace(kwargs, self._refer)))

    def _allocate(self, results: Sequence[Tensor | None]) -> None:
        position = len(self._calls)
        for result in results:
            if result is not None:
                storage = result.untyped_storage()
                block = Block(StorageWeakRef(storage), storage.nbytes(), position, position)
                self._blocks[storage_key(result)] = block

    def _refer(self, node: Tensor) -> Any:
        """Return the place of a tensor that the pass allocated; another one is held."""
        block = self._blocks.get(storage_key(node))
        if block is None:
            return node.detach()
        block.last = len(self._calls)
        # its address does not tell: the address of an empty view is 0
        offset = int(node.storage_offset()) * node.itemsize
        return _Place(block, offset, node.dtype, node.shape, node.stride())

    def _refuse_inputs(self, func: Any, form: _Form, args: tuple, kwargs: dict[str, Any]) -> None:
        named = dict(zip((arg.name for arg in schema_arguments(func)), args, strict=False)) | kwargs
        written = tree_flatten([named.get(name) for name in form.written])[0]
        if any(isinstance(x, Tensor) and storage_key(x) not in self._blocks for x in written):
            raise RuntimeError(f"the pass writes to its input by {func}")


def plan_memory(blocks: Sequence[Block]) -> int:
    """Set the offsets of all blocks, in the order of their allocation; return the bytes that they
    take together.

    A block gets the first gap that holds it.
    """
    live: list[Block] = []  # in the order of their offsets
    total = 0
    for block in blocks:
        live = [other for other in live if other.last >= block.first]
        start = 0
        for other in live:
            if start + block.size <= other.offset:
                break
            start = max(start, other.offset + other.size)
        block.offset = start
        insort(live, block, key=attrgetter("offset"))
        total = max(total, start + block.size)
    return total


class _Memory:
    """Memory of a graph."""

    def __init__(self, nbytes: int) -> None:
        self._base = torch.empty(nbytes + _ALIGNMENT, dtype=torch.uint8, device="cpu")
        self._views = {torch.uint8: self._base}

    @property
    def nbytes(self) -> int:
        """Size of this memory."""
        return self._base.nbytes

    def tensor(self, place: _Place | Tensor) -> Tensor:
        """Return the tensor of a place."""
        if isinstance(place, Tensor):
            return place
        dtype = place.dtype
        if dtype not in self._views:
            self._views[dtype] = self._base.view(dtype)
        offset = (place.block.offset + place.offset) // dtype.itemsize
        return self._views[dtype].as_strided(place.shape, place.stride, offset)

    def address(self, place: _Place | Tensor) -> int:
        """Return the address of a place."""
        if isinstance(place, Tensor):
            return to_kernel_arg(place)
        return self._base.data_ptr() + place.block.offset + place.offset


def _replace(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with other tensors and places."""
    if isinstance(node, Tensor | _Place):
        return change(node)
    if isinstance(node, dict):
        return {name: _replace(item, change) for name, item in node.items()}
    if isinstance(node, tuple | list):
        return type(node)(
            [item if isinstance(item, int) else _replace(item, change) for item in node]
        )
    return node


def _copy_results(
    operator: Callable, results: Sequence, args: tuple, kwargs: dict[str, Any]
) -> None:
    """Call an operator and copy its results to memory of the graph."""
    fresh = operator(*args, **kwargs)
    for old, new in zip(
        results, fresh if isinstance(fresh, tuple | list) else (fresh,), strict=True
    ):
        if old is not None:
            old.copy_(new)
