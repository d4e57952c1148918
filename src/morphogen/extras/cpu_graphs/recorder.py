"""Recorder of passes on a CPU, and the plan of the memory that their results share."""

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from heapq import heappop, heappush
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
_ADOPTED_BYTES = 2**16  # from these on a result is adopted: copying it takes longer

_Call = tuple[Callable, list[Any], dict[str, Any]]  # with positional and named arguments


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
    adoptable: bool = False  # a replay may allocate it: no kernel reads its address
    adopted: list["_Adopted"] | None = None  # tensors in it; None: it is in memory of the graph

    def adopt(self, result: Tensor) -> None:
        """Let the tensors of the block have the memory of a result."""
        storage: Any = result.untyped_storage()
        for tensor, place in self.adopted or ():
            tensor.set_(storage, place.offset // tensor.itemsize, place.shape, place.stride)

    def release(self) -> None:
        """Free the memory of a result."""
        for tensor, place in self.adopted or ():
            nothing: Any = torch.empty(0, dtype=place.dtype, device="cpu")
            tensor.set_(nothing)


class _Place(NamedTuple):
    """Tensor in memory that the pass allocated."""

    block: Block
    offset: int  # bytes within the block
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]


_Adopted = tuple[Tensor, _Place]


class _Gap(NamedTuple):
    """Argument of a recorded call that is in memory of the graph, which is not yet allocated."""

    arguments: Any  # list or dict
    key: Any  # in the arguments
    place: _Place
    by_address: bool  # for a kernel


def _tensor_at(memory: Tensor, place: _Place) -> Tensor:
    """Return the tensor of a place in memory.  memory: in the type of the place."""
    if place.block.adopted is not None:
        tensor = torch.empty(0, dtype=place.dtype, device="cpu")
        place.block.adopted.append((tensor, place))
        return tensor
    offset = (place.block.offset + place.offset) // place.dtype.itemsize
    return memory.as_strided(place.shape, place.stride, offset)


class _FillingForm(NamedTuple):
    """Form of an operator that fills given memory."""

    operator: Any
    names: tuple[str, ...]  # arguments that take the memory
    accepted: frozenset[str]  # all arguments
    copies: bool  # it calls the operator, and copies


class _Traits(NamedTuple):
    """Properties of an operator, which the record of every call needs."""

    kernel: Callable[..., Any] | None  # of the project
    composite: bool  # computed by other operators
    view: bool
    written: frozenset[str]  # arguments whose memory it writes to
    fills: bool  # its results, which are not empty memory
    copies: bool
    form: _FillingForm | None


# their forms that fill memory copy twice
_COPIES = {"clone", "_to_copy"}
_COPY = torch.ops.aten.copy_.default
# not declared as views
_VIEWS = {"_unsafe_view", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"}


@cache  # one lookup a call: the operators of torch are hashed by Python
def _traits(operator: Any) -> _Traits:
    name = operator.overloadpacket.__name__
    view = operator.is_view or torch.Tag.inplace_view in operator.tags or name in _VIEWS
    aliases = {arg.name: arg.alias_info for arg in schema_arguments(operator)}
    changed = [name for name, alias in aliases.items() if alias is not None and alias.is_write]
    written = frozenset(() if view else changed)
    return _Traits(
        kernel=KERNELS.get(operator),
        composite=is_composite(operator) and not written,
        view=view,
        written=written,
        fills="empty" not in name,
        copies=name in _COPIES,
        form=_filling_form(operator),
    )


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
            accepted = frozenset(arg.name for arg in arguments)
            return _FillingForm(overload, names, accepted, torch.Tag.generated in overload.tags)
    return None


class _Tape(UnguardedMode):
    """Record of the operators and kernels of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers_only = True
        self._calls: list[_Call] = []
        self._gaps: list[_Gap] = []
        # nested ones that are lists until their gaps are filled, with their keys; inner ones first
        self._tuples: list[tuple[Any, Any]] = []
        self._held: list[Tensor] = []  # inputs that kernels read by address
        self._blocks: dict[int, Block] = {}  # by key of the storage
        self._threads = torch.get_num_threads()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run and record an operator."""
        kwargs = kwargs or {}
        traits = _traits(func)
        if traits.kernel is not None:
            return self._run_kernel(traits.kernel, args)
        if traits.composite:  # below autograd, as within a kernel of the project
            with self:
                return func.decompose(*args, **kwargs)
        if traits.view:
            return func(*args, **kwargs)
        if reads_host(func, args, kwargs):
            raise RuntimeError(f"{func} reads a value on the host")
        if traits.written:
            if self.buffers_only:
                self._refuse_inputs(func, traits.written, args, kwargs)
            self._add(unchecked_operator(func), args, kwargs)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        results = result if isinstance(result, tuple | list) else (result,)
        self._allocate(results)
        if traits.fills:
            self._add_result(func, traits, args, kwargs, results)
        return result

    def bind(self) -> "CpuGraph":
        """Allocate the memory of the graph; return all calls on it."""
        planned: list[Block] = []
        ending: dict[int, list[Block]] = {}  # by position of the last call
        for block in self._blocks.values():
            if block.adoptable and block.nbytes >= _ADOPTED_BYTES:
                block.adopted = []
                ending.setdefault(block.last, []).append(block)
            else:
                planned.append(block)
        nbytes = plan_memory(planned) + _ALIGNMENT
        memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        start = memory.data_ptr()
        typed = {dtype: memory.view(dtype) for dtype in {gap.place.dtype for gap in self._gaps}}
        for arguments, key, place, by_address in self._gaps:
            if by_address:
                arguments[key] = start + place.block.offset + place.offset
            else:
                arguments[key] = _tensor_at(typed[place.dtype], place)
        for arguments, key in self._tuples:
            arguments[key] = tuple(arguments[key])
        calls = self._calls
        for position in sorted(ending, reverse=True):
            end = position + 1
            calls[end:end] = [(block.release, [], {}) for block in ending[position]]
        return CpuGraph(calls, memory, self._held)

    def _run_kernel(self, kernel: Callable[..., Any], args: tuple) -> Any:
        """Run an operator of the project, and record its parts: copies of inputs, and
        kernels.
        """
        with self:
            return kernel(self._call_kernel, *args)

    def _call_kernel(self, name: str, *args: Any) -> None:
        """Run and record a kernel."""
        values = [0 if arg is None else arg for arg in args]
        self._add(compiled_kernel(name), values, {}, by_address=True)
        for value in values:
            if isinstance(value, Tensor) and (block := self._blocks.get(storage_key(value))):
                block.adoptable = False
        call_kernel(name, *args)

    def _add_result(
        self,
        func: Any,
        traits: _Traits,
        args: tuple,
        kwargs: dict[str, Any],
        results: Sequence,
    ) -> None:
        """Record an operator that fills its results, or gives them where it cannot."""
        form = traits.form
        if traits.copies:
            self._add(unchecked_operator(_COPY), (results[0], args[0]), {})
            return
        nbytes = sum(0 if item is None else item.nbytes for item in results)
        large = nbytes >= _ADOPTED_BYTES
        if form is None or (form.copies and large) or any(item is None for item in results):
            blocks = [None if x is None else self._blocks[storage_key(x)] for x in results]
            for block in filter(None, blocks):
                block.adoptable = True
            give = partial(_give_results, unchecked_operator(func), blocks)
            self._add(give, (results, args, kwargs), {})
            return
        memory = results if len(form.names) == len(results) else (list(results),)
        accepted = {name: value for name, value in kwargs.items() if name in form.accepted}
        into = dict(zip(form.names, memory, strict=True))
        self._add(unchecked_operator(form.operator), args, accepted | into)

    def _add(
        self, call: Callable, args: Any, kwargs: dict[str, Any], *, by_address: bool = False
    ) -> None:
        if (threads := torch.get_num_threads()) != self._threads:
            self._calls.append((torch.set_num_threads, [threads], {}))
            self._threads = threads
        self._calls.append((call, self._copy(args, by_address), self._copy(kwargs, by_address)))

    def _copy(self, node: Any, by_address: bool = False) -> Any:
        """Copy nested arguments, with gaps for tensors that the pass allocated."""
        # an own walk: every epoch is recorded, and pytrees slow one of few envs by a twentieth or
        # more
        named = isinstance(node, dict)
        copy: Any = {} if named else [None] * len(node)
        for key, item in node.items() if named else enumerate(node):
            if isinstance(item, Tensor):
                copy[key] = self._refer(item, copy, key, by_address)
            elif isinstance(item, tuple | list | dict):
                copy[key] = self._copy(item, by_address)
                if isinstance(item, tuple):
                    self._tuples.append((copy, key))
            else:
                copy[key] = item
        return copy

    def _allocate(self, results: Sequence[Tensor | None]) -> None:
        position = len(self._calls)
        for result in results:
            if result is not None:
                storage = result.untyped_storage()
                block = Block(StorageWeakRef(storage), storage.nbytes(), position, position)
                self._blocks[storage_key(result)] = block

    def _refer(self, node: Tensor, arguments: Any, key: Any, by_address: bool) -> Any:
        """Return a tensor that the pass was given, or its address; mark a gap for another one."""
        block = self._blocks.get(storage_key(node))
        if block is None:
            held = node.detach() if node.requires_grad else node
            if not by_address:
                return held
            self._held.append(held)
            return to_kernel_arg(held)
        block.last = len(self._calls)
        # its address does not tell: the address of an empty view is 0
        offset = int(node.storage_offset()) * node.itemsize
        place = _Place(block, offset, node.dtype, node.shape, node.stride())
        self._gaps.append(_Gap(arguments, key, place, by_address))
        return None

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
    gaps: list[tuple[float, float]] = [(0, math.inf)]  # start and end, in order
    used: list[tuple[int, int, int]] = []  # heap of last call, start and end
    total = 0
    for block in (block for block in blocks if block.nbytes):
        while used and used[0][0] < block.first:
            _, *freed = heappop(used)
            _add_gap(gaps, *freed)
        size = -(-block.nbytes // _ALIGNMENT) * _ALIGNMENT
        at = next(i for i, (start, end) in enumerate(gaps) if end - start >= size)
        start, end = gaps.pop(at)
        block.offset = int(start)
        if start + size < end:
            gaps.insert(at, (start + size, end))
        heappush(used, (block.last, block.offset, block.offset + size))
        total = max(total, block.offset + size)
    return total


def _add_gap(gaps: list[tuple[float, float]], start: float, end: float) -> None:
    """Add a gap, joined with its neighbours; the last gap has no end."""
    at = bisect(gaps, (start, end))
    if gaps[at][0] == end:
        end = gaps.pop(at)[1]
    if at and gaps[at - 1][1] == start:
        at -= 1
        start = gaps.pop(at)[0]
    gaps.insert(at, (start, end))


def _give_results(
    operator: Callable,
    blocks: Sequence[Block | None],
    results: Sequence,
    args: tuple,
    kwargs: dict[str, Any],
) -> None:
    """Call an operator; copy its results to memory of the graph, or adopt theirs."""
    fresh = operator(*args, **kwargs)
    for block, old, new in zip(
        blocks, results, fresh if isinstance(fresh, tuple | list) else (fresh,), strict=True
    ):
        if block is None:
            continue
        if block.adopted is None:
            old.copy_(new)
        else:
            block.adopt(new)
