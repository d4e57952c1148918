"""Rehearsal of a run on a device without values: it finds what would fail, wait or vary on a GPU,
without one.

    import morphogen as mg
    from morphogen.train.loop import Scheduler
    from support import fake_device


    def play(setup):
        Scheduler(setup).run()


    spec = mg.RunSpec(preset="tiny", rounds=1, envs=4, episode_length=2)
    found = fake_device.rehearse(play, spec)
    assert not found.faults
    assert (
        found.crossings == found.ledger
    )  # copies between devices, by the names of `device.transfers.FENCES`

`FakeTensorMode` of torch propagates shapes and devices, and raises where an operator meets two
devices or a value is
read.  The device is the private backend of torch, named `gpu`: a build of torch without CUDA has
no guard for `cuda`,
which indexing and gradients ask for.  What the host receives at the fences comes from the same run
on the CPU, played
before.  Streams and events are replaced by objects that do nothing, and the thread that reads
streamed data by one that
fills a buffer when it is asked for.  Values, speed and the order of streams are not rehearsed.
"""

import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from support.extras import has_extra
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from morphogen.config.execution_spec import AMP_OFF
from morphogen.config.registry import error_line
from morphogen.config.spec import RunSpec
from morphogen.data import feed
from morphogen.data.splits import DerivedInputs, Samples
from morphogen.device.transfers import StagingBuffer, Transfers
from morphogen.env.setup import PRECISIONS, Setup, build_setup
from morphogen.state import tree_ops
from morphogen.state.measure import LabelledInputs
from morphogen.train.reporter import Reporter

NAME = "gpu"
DEVICE = f"{NAME}:0"
# Operators for CUDA that `torch.use_deterministic_algorithms` refuses, and those with atomic
# additions, which it
# replaces by slower ones. A sum along an axis (`cumsum`) is among them for floating-point numbers
# only.
NONDETERMINISTIC = re.compile(
    r"(index_add|index_reduce|scatter_add|scatter_reduce)_?|put_|bincount|histc|kthvalue|mode"
    r"|(nan)?median|resize_|cumsum|nll_loss2d_forward|_ctc_loss|_embedding_bag|max_unpool[23]d"
    r"|(max_pool[23]d_with_indices|avg_pool3d|grid_sampler_[23]d)_backward"
    r"|(_adaptive_avg|adaptive_max|fractional_max)_pool[23]d_backward"
    r"|(reflection_pad|replication_pad|upsample_)\w+_backward"
)
_COPIES = {"_to_copy", "copy_"}
# Functions that open something: their copies to the device happen once per table, schedule,
# environment or resumed run.
OPENS = {
    "WaitPolicy.control": "env/action_control.py",
    "build_tables": "extras/schedules/schedule_control.py",
    "_build_table": "state/tree_ops.py",
    "open_environment": "env/environment.py",
    "restore_tree": "state/tensor_trees.py",
    "Rollout.__init__": "env/episodes.py",
}


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """One thing that would fail, wait or vary on a GPU.  `location`: lines of the package that led
    to it.
    """

    what: str
    location: str


@dataclass(slots=True)
class Rehearsal:
    """Findings of `rehearse`."""

    faults: list[DeviceFault] = field(default_factory=list)
    # copies between devices, one per transfer, by fence
    crossings: Counter[str] = field(default_factory=Counter)
    ledger: Counter[str] = field(default_factory=Counter)  # counts of all `Transfers` of the run
    operators: Counter[str] = field(default_factory=Counter)  # calls of aten
    result: Any = None  # of the play, with tensors without values


class _DeviceWatch(TorchDispatchMode):
    """Mode that records copies, mixed devices and operators that vary."""

    def __init__(self, found: Rehearsal) -> None:
        super().__init__()
        self.found = found
        self.fence: str | None = None  # open now
        self.crossed = False  # since the fence was opened
        self._pinned: set[int] = set()  # storages

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then judge it."""
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        out = func(*args, **kwargs)
        self.found.operators[name] += 1
        if kwargs.get("pin_memory"):
            self._pinned.add(out.untyped_storage()._cdata)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if NONDETERMINISTIC.fullmatch(name) and (
            name != "cumsum" or tensors[0].is_floating_point()
        ):
            self.add_fault(f"{name} varies from run to run")
        devices = {leaf.device.type for leaf in tensors}
        if name in _COPIES:
            self._judge_copy(name, args, kwargs, out)
        elif len(devices) > 1:
            self.add_fault(f"{name} of tensors on {' and '.join(sorted(devices))}")
        return out

    def _judge_copy(self, name: str, args: tuple, kwargs: dict[str, Any], out: Tensor) -> None:
        source = args[1] if name == "copy_" else args[0]
        if source.device.type == out.device.type:
            return
        if self.fence is None and _opens():
            return
        host = source if source.device.type == "cpu" else out
        asynchronous = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        if asynchronous and host.untyped_storage()._cdata not in self._pinned:
            self.add_fault("asynchronous copy of host memory that is not pinned")
        if self.fence is not None:
            self.found.crossings[self.fence] += not self.crossed
            self.crossed = True
        else:
            self.add_fault(
                f"copy from {source.device.type} to {out.device.type} outside of the fences"
            )

    def add_fault(self, what: str) -> None:
        """Record a fault at the current line."""
        self.found.faults.append(
            DeviceFault(
                what,
                " < ".join(_package_lines(traceback.extract_stack())[:3])
                or "outside of the package",
            )
        )

    @contextmanager
    def open_fence(self, name: str) -> Iterator[None]:
        """Allow one crossing."""
        self.fence, self.crossed = name, False
        try:
            yield
        finally:
            self.fence = None


def _package_lines(stack: traceback.StackSummary) -> list[str]:
    """Lines of a stack, innermost first, outside of torch and this module."""
    return [
        f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno}"
        for frame in reversed(stack)
        if frame.filename != __file__ and "site-packages" not in frame.filename
    ]


def _opens() -> bool:
    """Return True inside a function that opens something."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(OPENS.get(code.co_qualname, "\0")):
            return True
        frame = frame.f_back
    return False


def rehearse(play: Callable[[Setup], Any], spec: RunSpec) -> Rehearsal:
    """Play on the CPU, then on a device without values.

    Args:
        play: function of a setup; it may run, evaluate, save and resume, and may not read files of
        the run back.
        spec: resolved or not, for a CPU; it has the precision of the device, float16 too, and not
        `auto`.

    Returns: faults, crossings and operators; an exception of the second play is the last fault.

    Example:
        >>> import morphogen as mg
        >>> from support import fake_device
        >>> spec = mg.RunSpec(preset="tiny", rounds=1, envs=2, policy_name="wait", episode_length=2)
        >>> found = fake_device.rehearse(lambda setup: mg.Scheduler(setup).run(), spec)
        >>> found.faults, found.crossings["plan"], found.crossings["update"]
        ([], 2, 1)
    """
    received: list[tuple[str, dict[str, np.ndarray]]] = []
    amp, spec = spec.engine.amp, replace(spec, engine=replace(spec.engine, amp=AMP_OFF))
    with patch.object(Transfers, "receive", _recording(Transfers.receive, received)):
        play(build_setup(spec))
    found, setup = Rehearsal(), build_setup(spec)
    setup = replace(setup, net=replace(setup.net, precision=PRECISIONS[amp]))
    with fake_tensors(found, received):
        try:
            found.result = play(move_setup(setup, torch.device(DEVICE)))
        except Exception as error:
            found.faults.append(fault_of(error))
    return found


def fault_of(error: Exception) -> DeviceFault:
    """Return what an operator on the device raised, as a fault."""
    return DeviceFault(
        error_line(error),
        " < ".join(_package_lines(traceback.extract_tb(error.__traceback__))[:3]),
    )


def _recording(receive: Callable[..., Any], received: list[tuple[str, Any]]) -> Callable[..., Any]:
    """Wrap `Transfers.receive`, so that it keeps what it returns."""

    def record(transfers: Transfers, name: str, slot: int = 0) -> dict[str, np.ndarray]:
        arrays = receive(transfers, name, slot)
        received.append((name, {key: value.copy() for key, value in arrays.items()}))
        return arrays

    return record


@contextmanager
def fake_tensors(
    found: Rehearsal, received: list[tuple[str, dict[str, np.ndarray]]]
) -> Iterator[None]:
    """Make all tensors of a block fake, watch them, and let fences receive the given arrays, in
    order.
    """
    _open_backend()
    watch, arrays = _DeviceWatch(found), iter(received)
    tables, tensor, as_tensor = tree_ops._TABLES, torch.tensor, torch.as_tensor

    def receive(transfers: Transfers, name: str, slot: int = 0) -> dict[str, np.ndarray]:
        expected, values = next(arrays)
        if expected != name:
            raise RuntimeError(f"fences: expected {expected}, as on the CPU, got {name}")
        return values

    def on_device(data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        """Fake mode cannot copy constants to a device without a guard."""
        made = tensor(data, dtype=dtype, **options)
        if device is None or torch.device(device).type == "cpu":
            return made
        if not _opens():
            watch.add_fault("a constant is copied to the device")
        return torch.empty(made.shape, dtype=made.dtype, device=device)

    restore_log = Reporter.restore

    def restore(reporter: Reporter, state: Any, columns: Any, position: tuple[int, int]) -> None:
        """Columns are read on the CPU, where fake tensors have no values."""
        blank = {
            name: np.zeros(column.shape, str(column.dtype).removeprefix("torch."))
            for name, column in columns.items()
        }
        restore_log(reporter, state, blank, position)

    def convert(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        make = as_tensor if isinstance(data, Tensor) else on_device
        return make(data, dtype=dtype, device=device)

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "tensor", on_device))
        stack.enter_context(patch.object(torch, "as_tensor", convert))
        stack.enter_context(patch.object(Transfers, "receive", receive))
        stack.enter_context(patch.object(Reporter, "restore", restore))
        if has_extra("streaming"):
            streaming = import_module("morphogen.extras.streaming.streamed_feed")
            stack.enter_context(patch.object(streaming, "ThreadPoolExecutor", _PromptExecutor))
            stack.enter_context(patch.object(streaming.StreamedFeed, "_fill", _fill_nothing))
        for method, name in (
            ("send", None),
            ("upload", None),
            ("fetch_state", "checkpoint"),
            ("fill", "batch"),
        ):
            stack.enter_context(
                patch.object(Transfers, method, _fenced(getattr(Transfers, method), watch, name))
            )
        stack.enter_context(
            patch.object(Transfers, "__init__", _counted(Transfers.__init__, found))
        )
        stack.enter_context(patch.object(tree_ops, "_TABLES", type(tables)()))
        for cached in (tree_ops._build_table, tree_ops._cache_table):
            stack.callback(cached.cache_clear)
            cached.cache_clear()
        # threads of devices started before
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(watch)
        yield


def _fenced(
    method: Callable[..., Any], watch: _DeviceWatch, name: str | None
) -> Callable[..., Any]:
    """Wrap a transfer, named by its first argument without a `name`."""

    def crossing(transfers: Transfers, *args: Any, **kwargs: Any) -> Any:
        with watch.open_fence(args[0] if name is None else name):
            return method(transfers, *args, **kwargs)

    return crossing


def _counted(init: Callable[..., None], found: Rehearsal) -> Callable[..., None]:
    """Wrap the constructor of transfers, so that all of them count in one ledger."""

    def construct(transfers: Transfers, *args: Any, **kwargs: Any) -> None:
        init(transfers, *args, **kwargs)
        transfers.ledger = found.ledger  # type: ignore[assignment]

    return construct


class _PromptExecutor:
    """Executor without a thread: fake tensors belong to one."""

    def __init__(self, *_: Any) -> None:
        """Accept a number and a name of threads."""

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a future that calls the function when its result is taken."""
        return SimpleNamespace(result=partial(function, *args))

    def shutdown(self, **_: Any) -> None:
        """Do nothing."""


def _fill_nothing(streamed: Any, buffer: StagingBuffer) -> StagingBuffer:
    """Copy a buffer without values."""
    streamed._transfers.fill(buffer, lambda _: None)
    return buffer


class _Stream:
    """Stream or event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept any options."""

    def record(self, *args: Any) -> None:
        """Do nothing."""

    wait_event = synchronize = record


def _open_backend() -> None:
    """Open the private backend, once per process."""
    if torch._C._get_privateuse1_backend_name() == NAME:
        return
    _setup_privateuseone_for_python_backend(NAME)
    module: Any = getattr(torch, NAME)
    module.synchronize = lambda *_: None  # of tensordict, after a move
    module.Stream = module.Event = _Stream
    module.current_stream = _Stream
    module.stream = lambda _: nullcontext()


def move_setup(setup: Setup, device: torch.device) -> Setup:
    """Return a setup that was opened on a CPU as if it had been opened on a device; tensors have no
    values.
    """

    def move(leaf: Any) -> Any:
        if isinstance(leaf, DerivedInputs):
            return leaf.map_tensors(move)
        return torch.empty(leaf.shape, dtype=leaf.dtype, device=device)

    data = setup.dataset
    test = Samples(move(data.test.inputs), move(data.test.labels))
    train = (
        data.train
        if setup.feed is None
        else Samples(move(data.train.inputs), move(data.train.labels))
    )
    scored = data.validation
    images, labels = move(scored.inputs), move(scored.labels)
    validation = LabelledInputs(inputs=images, labels=labels, batch_size=[], device=device)
    dataset = replace(data, train=train, labels=move(data.labels), validation=validation, test=test)
    batches = setup.feed
    if batches is not None:
        batches = feed.ResidentFeed(dataset, setup.spec)
    return replace(setup, dataset=dataset, feed=batches, device=device)
