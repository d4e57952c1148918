"""Recorder of passes on a CPU, and the plan of the memory that their results share."""

from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
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
from morphogen.kernels.native import KERNELS, call_kernel, compiled_kernel, to_kernel_arg

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
    memory: Tensor  # of the results of the pass, uint8
    held: object  # inputs that kernels read by address

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


class _Place(NamedTuple):
    """Tensor in memory that the pass allocated."""

    block: Block
    offset: int  # bytes within the block
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]


def _tensor_at(memory: Tensor, place: _Place | Tensor) -> Tensor:
    """Return the tensor of a place in memory."""
    if isinstance(place, Tensor):
        return place
    offset = (place.block.offset + place.offset) // place.dtype.itemsize
    empty = torch.empty(0, dtype=place.dtype, device="cpu")
    return empty.set_(memory.untyped_storage(), offset, place.shape, place.stride)


def _address_at(memory: Tensor, place: _Place | Tensor) -> int:
    """Return the address of a place in memory."""
    if isinstance(place, Tensor):
        return to_kernel_arg(place)
    return memory.data_ptr() + place.block.offset + place.offset


class _FillingForm(NamedTuple):
    """Form of an operator that fills given memory."""

    operator: Any
    names: tuple[str, ...]  # arguments that take the memory
    accepted: frozenset[str]  # all arguments


# not declared as views
_VIEWS = {"_unsafe_view", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"}


@cache
def _is_view(operator: Any) -> bool:
    tagged = torch.Tag.inplace_view in operator.tags
    return operator.is_view or tagged or operator.overloadpacket.__name__ in _VIEWS


@cache
def _written_names(operator: Any) -> frozenset[str]:
    """Return the names of the arguments whose memory the operator writes to."""
    return frozenset(
        arg.name
        for arg in schema_arguments(operator)
        if arg.alias_info is not None and arg.alias_info.is_write and not _is_view(operator)
    )


@cache
def _filling_form(operator: Any) -> _FillingForm | None:
    """Return the overload with the same arguments that fills given memory, or None."""
    packet = operator.overloadpacket
    layout = {"dtype", "layout", "device", "pin_memory"}
    expected = [(arg.name, str(arg.type)) for arg in schema_arguments(operator)]
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = schema_arguments(overload)
        names = tuple(arg.name for arg in arguments if arg.is_out)
        inputs = [(arg.name, str(arg.type)) for arg in arguments if not arg.is_out]
        without = [
            argument for argument in expected if argument[0] not in layout or argument in inputs
        ]
        if names and inputs == without:
            return _FillingForm(overload, names, frozenset(arg.name for arg in arguments))
    return None


class _Tape(UnguardedMode):
    """Record of the operators and kernels of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers_only = True
        # with the function that turns a place into an argument
        self._calls: list[tuple[Callable, _Call]] = []
        self._blocks: dict[int, Block] = {}  # by key of the storage
        self._threads = torch.get_num_threads()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run and record an operator."""
        kwargs = kwargs or {}
        written = _written_names(func)
        if func in KERNELS:
            return self._run_kernel(func, args)
        if is_composite(func) and not written:  # below autograd, as within a kernel of the project
            with self:
                return func.decompose(*args, **kwargs)
        if _is_view(func):
            return func(*args, **kwargs)
        if reads_host(func, args, kwargs):
            raise RuntimeError(f"{func} reads a value on the host")
        if written:
            if self.buffers_only:
                self._refuse_inputs(func, written, args, kwargs)
            self._add(unchecked_operator(func), args, kwargs)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        results = result if isinstance(result, tuple | list) else (result,)
        self._allocate(results)
        if "empty" not in func.overloadpacket.__name__:
            self._add_result(func, args, kwargs, results)
        return result

    def bind(self) -> "CpuGraph":
        """Allocate the memory of the graph; return all calls on it."""
        nbytes = plan_memory([*self._blocks.values()]) + _ALIGNMENT
        memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        calls: list[_Call] = []
        for argument, (call, args, kwargs) in self._calls:
            place = partial(argument, memory)
            calls.append((call, _replace(args, place), _replace(kwargs, place)))
        return CpuGraph(calls, memory, self._calls)

    def _run_kernel(self, func: Any, args: tuple) -> Any:
        """Run an operator of the project, and record its parts: copies of inputs, and
        kernels.
        """
        with self:
            return KERNELS[func](self._call_kernel, *args)

    def _call_kernel(self, name: str, *args: Any) -> None:
        """Run and record a kernel."""
        values = [0 if arg is None else arg for arg in args]
        self._add(compiled_kernel(name), values, {}, argument=_address_at)
        call_kernel(name, *args)

    def _add_result(
        self, func: Any, args: tuple, kwargs: dict[str, Any], results: Sequence
    ) -> None:
        """Record an operator that fills its results, or copies them where it cannot."""
        form = _filling_form(func)
        if form is None or any(item is None for item in results):
            self._add(partial(_copy_results, unchecked_operator(func)), (results, args, kwargs), {})
            return
        memory = results if len(form.names) == len(results) else (list(results),)
        accepted = {name: value for name, value in kwargs.items() if name in form.accepted}
        into = dict(zip(form.names, memory, strict=True))
        self._add(unchecked_operator(form.operator), args, accepted | into)

    def _add(
        self, call: Callable, args: Any, kwargs: dict[str, Any], argument: Callable = _tensor_at
    ) -> None:
        if (threads := torch.get_num_threads()) != self._threads:
            self._calls.append((argument, (torch.set_num_threads, (threads,), {})))
            self._threads = threads
        recorded = (call, _replace(args, self._refer), _replace(kwargs, self._refer))
        self._calls.append((argument, recorded))

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

    def _refuse_inputs(
        self, func: Any, written: frozenset[str], args: tuple, kwargs: dict[str, Any]
    ) -> None:
        named = dict(zip((arg.name for arg in schema_arguments(func)), args, strict=False)) | kwargs
        leaves = tree_flatten([named.get(name) for name in written])[0]
        if any(isinstance(x, Tensor) and storage_key(x) not in self._blocks for x in leaves):
            raise RuntimeError(f"the pass writes to its input by {func}")


def plan_memory(blocks: Sequence[Block]) -> int:
    """Set the offsets of all blocks, in the order of their allocation; return the bytes that they
    take together.

    A block gets the first gap that holds it.
    """
    live: list[tuple[int, int, int]] = []  # start, end and last call, in order
    total = 0
    for block in blocks:
        first = block.first
        size = -(-block.nbytes // _ALIGNMENT) * _ALIGNMENT
        live = [part for part in live if part[2] >= first]
        start = 0
        for other, end, _ in live:
            if start + size <= other:
                break
            start = end
        block.offset = start
        insort(live, (start, start + size, block.last))
        total = max(total, start + size)
    return total


def _replace(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested arguments with other tensors and places."""
    # an own walk: every epoch is recorded, and pytrees slow one of few envs by a twentieth or more
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
