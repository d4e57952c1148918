"""Hosts from modules of plain torch: every env trains its own copy of a user's network.

A stage of the module (`module_stages`) runs for all envs at once: `torch.func.vmap` over the
stacked parameters.  Features are [R, B, *shape], as torch has them, until a seed reads them.
"""

import copy
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from morphogen.compat import count_writes
from morphogen.config.host import Host
from morphogen.config.parts import BLUEPRINTS, DATASETS
from morphogen.errors import ConfigError
from morphogen.extras.modules.initial_values import build_recorded, leaf_of
from morphogen.extras.modules.module_stages import (
    ModuleStage,
    Slot,
    StagedModule,
    split_module,
    submodules,
)
from morphogen.hosts.host_networks import Features, HostRows
from morphogen.hosts.layout import ParamLayout
from morphogen.state import rng
from morphogen.vocab.slot import SlotSpec, format_slot

EXAMPLE = 3  # samples of the run without data
ROWS = 2  # networks of it
_KINDS = {1: "dense", 2: "sequences", 3: "images"}  # of features, by the axes of a sample
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_LANES = 2**27  # random numbers of a place of dropout


class KeyedDropout(nn.Module):
    """Dropout whose draws come from the random streams of its env.

    Its buffer `stream`, int64 [5], is the stream of a minibatch.
    """

    stream: Tensor

    def __init__(self, share: float, place: int, axes: int | None = None) -> None:
        """Set up dropout of a share of the values; `axes`: leading axes of a sample that are
        dropped as wholes, None = all.
        """
        super().__init__()
        self.share = share
        self.place = place
        self.axes = axes
        self.register_buffer("stream", torch.zeros(5, dtype=torch.int64, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """Drop values in training, and scale the others up."""
        if not self.training or not self.share:
            return x
        size = x.shape if self.axes is None else x.shape[: 1 + self.axes]
        words = rng.random_bits(self.stream, size.numel(), first=self.place * _LANES)
        kept = (words >= round(self.share * 2**32)).to(x.dtype) / (1 - self.share)
        return x * kept.view(*size, *(1,) * (x.dim() - len(size)))


class _WithSlot(nn.Module):
    """A submodule with a slot after it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.slot = Slot()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.slot(self.inner(*args, **kwargs))


@dataclass(frozen=True, eq=False)
class ModuleHost(Host):
    """A host whose networks are copies of a module; `host_from_module` makes it."""

    module: nn.Module
    """The user's module, as it was built."""
    leaves: Any
    """`ParamLeaf` of every parameter that trains, in the order of the module."""
    given: Mapping[str, Tensor]
    """Parameters that every env starts from, by name; the others are drawn."""
    slot_names: Mapping[str, str] | None = None
    """Names of slots by submodule after which they are; None: the module has its own."""
    example: Tensor | None = None
    """An input, [*shape], on the device `meta`; None: of the data."""
    staged: StagedModule | None = field(default=None, repr=False)
    """The module cut at its slots; None: it waits for the shape of the data."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Name of a parameter or buffer in the user's module, by its name in the stages."""
    buffers: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor], repr=False)
    """Constants, by name in the stages."""
    causal: bool = False
    """A language model: see `host_from_module`."""

    attends: bool = field(default=False, init=False, repr=False)
    """Attention of torch is called."""

    @property
    def is_bound(self) -> bool:
        """True once the shape of an input is known."""
        return self.staged is not None

    def for_data(self, data: Any) -> "ModuleHost":
        """Return the host for samples of a data set, or as it is if it knows their shape.

        Raises: ConfigError if the shape of an input is not known.
        """
        if self.is_bound:
            return self
        stored = DATASETS.get(data) if isinstance(data, str) else data
        inputs = getattr(stored, "inputs", None)
        if inputs is None:
            raise ConfigError(
                f"host {self.name}: expected an example of an input for the data set {data}: give "
                "host_from_module(..., example=torch.zeros(shape))"
            )
        return _bind(self, torch.empty(inputs.shape[1:], device="meta"))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output for one sample."""
        assert self.staged is not None
        return self.staged.output

    @property
    def name(self) -> str:
        """Name of the class of the module."""
        return type(self.module).__name__

    def numbers(self) -> dict[str, object]:
        """Numbers that tell one host from another, for events."""
        slots = {slot.name: [slot.channels, *slot.size] for slot in self.all_slots}
        return {"module": self.name, "params": self.params(), "slots": slots}

    def params(self, width: float = 1.0, classes: int | None = None) -> int:
        """Parameters that train."""
        return self.layout().size

    def layout(self) -> ParamLayout:
        """Return the parameters of one host, in the order of the module."""
        return ParamLayout(self.leaves)

    def start_values(self) -> Tensor | None:
        """Return the parameters that envs start from, float32 [1, P]; NaN: they are drawn."""
        if not self.given:
            return None
        parts = [
            self.given[leaf.name].detach().float().flatten()
            if leaf.name in self.given
            else torch.full((leaf.size,), torch.nan, device="cpu")
            for leaf in self.leaves
        ]
        return torch.cat(parts).unsqueeze(0)

    def spare_weights(self) -> frozenset[str]:
        """Return the names of the buffers and of the parameters that do not train."""
        trained = {leaf.name for leaf in self.leaves}
        return frozenset(self.module.state_dict()) - trained

    def slot_path(self, name: str) -> str:
        """Return the name of the submodule after whose output a slot is."""
        assert self.staged is not None
        paths = dict(zip((slot.name for slot in self.all_slots), self.staged.slots, strict=True))
        return paths[name] if self.slot_names is None else paths[name].removesuffix(".slot")

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the inputs as they are.  [E, B, *shape], or [B, *shape] shared by all rows."""
        return inputs

    def stage(self, i: int, x: Tensor | Features, rows: HostRows) -> Features:
        """Compute the layers between two slots.

        Shapes: x of `embed`, or the features of the slot before with the values that it carries
        [R, B, ...] -> features of the next slot.
        """
        return Features(*self._run(i, x, rows))

    def head(self, x: Tensor | Features, rows: HostRows) -> Tensor:
        """Return the output, [R, B, *shape]."""
        return self._run(len(self.all_slots), x, rows)[0]

    def _run(
        self, i: int, x: Tensor | Features, rows: HostRows
    ) -> tuple[Tensor, dict[str, Tensor]]:
        assert self.staged is not None
        stage = self.staged.stages[i]
        values: dict[str, Tensor] = {}
        shared = False
        if isinstance(x, Features):
            entry = x.values
            values |= x.carried
        else:
            entry = x
            shared = x.dim() == 1 + len(self.input_shape)
        values[self.staged.entries[i]] = entry
        results = self._call(stage, values, rows, shared=shared)
        made = dict(zip(stage.makes, results[1:], strict=True))
        kept = {name: made[name] if name in made else values[name] for name in stage.keeps}
        if shared and self.staged.entries[i] in kept:  # before the first slot, a row is an env
            kept[self.staged.entries[i]] = entry.expand(len(results[0]), *entry.shape)
        return results[0], kept

    def _call(
        self, stage: ModuleStage, values: Mapping[str, Tensor], rows: HostRows, *, shared: bool
    ) -> tuple[Tensor, ...]:
        """Run a stage for all rows."""
        streams = rows.dropout
        body = stage.body if streams is None else _training_form(stage.body)
        own, constant = _names(stage.body)
        params = {path: rows.pick(rows.leaves[self.sources[path]]) for path in own}
        like = next(iter(rows.leaves.values()))
        buffers = {path: _constant(self, path, like) for path in constant}
        if streams is not None:
            own_streams = [path for path in buffers if path.endswith(".stream")]
            params |= {path: rows.pick(streams) for path in own_streams}
            buffers = {path: x for path, x in buffers.items() if path not in params}
        args = [values[name] for name in stage.takes]

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            named = dict(zip(params, tensors, strict=False)) | buffers
            # shared parameters occur under each of their names: nothing to tie
            return functional_call(body, named, tensors[len(params) :], tie_weights=False)

        dims = (0,) * len(params) + (None if shared else 0,) * len(args)
        if all(dim is None for dim in dims):  # the same in every row
            count = len(rows.pick(like))
            return tuple(x.expand(count, *x.shape) for x in run(*args))
        choose: Any = sdpa_kernel  # torch declares no type of the context
        # the fused attention of a CPU would run for one network at a time
        fused = self.attends and like.device.type == "cpu"
        layers = self.attends and not torch.compiler.is_compiling()
        with (
            choose(SDPBackend.MATH) if fused else nullcontext(),
            _plain_layers() if layers else nullcontext(),
        ):
            return vmap(run, in_dims=dims)(*params.values(), *args)


@contextmanager
def _plain_layers() -> Generator[None, None, None]:
    """Context in which layers of torch run as they do with a gradient: their fast form without one
    would run for one network at a time.
    """
    layers = torch.backends.mha
    before = layers.get_fastpath_enabled()
    layers.set_fastpath_enabled(False)
    try:
        yield
    finally:
        layers.set_fastpath_enabled(before)


class _AttentionCalls(TorchFunctionMode):
    """Notes whether attention of torch is called."""

    found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.found |= "attention" in getattr(func, "__name__", "")
        return func(*args, **(kwargs or {}))


@functools.cache
def _training_form(body: nn.Module) -> nn.Module:
    """Return a copy of a stage that drops values."""
    return copy.deepcopy(body).train()


@functools.cache
def _names(body: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the parameters that train, and of all other tensors, of a stage."""
    named = list(body.named_parameters(remove_duplicate=False))
    own = tuple(name for name, x in named if x.requires_grad)
    fixed = tuple(name for name, x in named if not x.requires_grad)
    return own, (*fixed, *(name for name, _ in body.named_buffers(remove_duplicate=False)))


@functools.cache
def _constant_on(host: ModuleHost, path: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    buffer = host.buffers[path]
    return buffer.to(device, dtype if buffer.is_floating_point() else buffer.dtype)


def _constant(host: ModuleHost, path: str, like: Tensor) -> Tensor:
    """Return a constant in the dtype and on the device of the parameters, moved once."""
    return _constant_on(host, path, like.dtype, like.device)


def host_from_module(
    factory: Callable[[], nn.Module] | nn.Module,
    *,
    slots: Mapping[str, str] | None = None,
    example: Tensor | None = None,
    causal: bool = False,
) -> ModuleHost:
    """Make a host of a module of plain torch.

    Args:
        factory: function without arguments, or class, that builds a module; every env draws its own
            initial values by the rules of its layers.  Or a module, from whose parameters every env
            starts.
        slots: names of slots, as `r0c0`, by the submodules after whose output they are; None: the
            module calls `Slot`s.
        example: one input, [*shape], of the dtype of samples; None: as the arrays of the task.
        causal: the module is a language model: its output [B, L, C] are logits of the next token
            at every place, and no place sees the places after it, in gates of seeds neither.

    Features at a slot are dense [B, C], sequences [B, L, C] or images [B, C, H, W], and get the
    blueprints that fit these.  Batch normalisation always takes the statistics of its batch, and
    dropout draws from the random streams of its env.
    Raises: ConfigError for a module that torch cannot trace, without a slot, with a state besides
    its parameters, or with draws of its own.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.stem, self.grow = torch.nn.Linear(6, 16), mg.Slot()
        ...         self.head = torch.nn.Linear(16, 3)
        ...
        ...     def forward(self, x):
        ...         return self.head(self.grow(torch.relu(self.stem(x))))
        >>> host = mg.host_from_module(Net, example=torch.zeros(6))
        >>> host.params(), [slot.name for slot in host.all_slots], host.classes
        (163, ['r0c0'], 3)
    """
    if not isinstance(factory, nn.Module) and not callable(factory):
        raise ConfigError(
            f"host_from_module: expected a module, or a function that builds one, got {factory!a}"
        )
    module = factory if isinstance(factory, nn.Module) else None
    rules: dict[str, Any] = {}
    if module is None:
        module, rules = build_recorded(factory)
    trained = {name: x for name, x in module.named_parameters() if x.requires_grad}
    if not trained:
        raise ConfigError(f"host {type(module).__name__}: expected parameters that train, got none")
    leaves = tuple(leaf_of(name, x, rules.get(name)) for name, x in trained.items())
    given = {name: x for name, x in trained.items() if rules.get(name) is None}
    host = ModuleHost(copy.deepcopy(module), leaves, given, slots, causal=causal)
    return host if example is None else _bind(host, example.to("meta"))


def plain_copy(host: ModuleHost, leaves: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of the user's module with other parameters, whose batch normalisation takes the
    statistics of its batch.

    leaves: {name: [*shape]} of all parameters that train.
    """
    module = copy.deepcopy(host.module)
    _forget_statistics(module)
    module.load_state_dict(dict(leaves), strict=False)
    return module


def _forget_statistics(module: nn.Module) -> None:
    """Let batch normalisation take the statistics of its batch."""
    for _, part in submodules(module):
        if isinstance(part, _BATCH_NORMS):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None


def _bind(host: ModuleHost, example: Tensor) -> ModuleHost:
    """Return the host for inputs like an example [*shape] on the device `meta`."""
    private, names = _prepare(host)
    tensors = dict(private.named_buffers(remove_duplicate=False))
    tensors |= dict(private.named_parameters(remove_duplicate=False))
    sources = {path: names.get(id(x), path) for path, x in tensors.items()}
    constants = {
        path: x.detach()
        for path, x in tensors.items()
        if not (isinstance(x, nn.Parameter) and x.requires_grad)
    }
    ghost = copy.deepcopy(private).to("meta")
    batch = torch.empty(EXAMPLE, *example.shape, dtype=example.dtype, device="meta")
    memory = _Memory(host.name, ghost)
    staged = split_module(ghost, batch)
    memory.check()
    bound = replace(host, example=example, staged=staged, sources=sources, buffers=constants)
    wrong = [shape for shape in staged.shapes if len(shape) not in _KINDS]
    if wrong:
        raise ConfigError(
            f"host {host.name}: expected features [B, C], [B, L, C] or [B, C, H, W] at a slot, got "
            f"{list(wrong[0])} after the samples"
        )
    kinds = {_KINDS[len(shape)] for shape in staged.shapes}
    bound.set_numbers(
        classes=staged.output[-1],
        input_shape=tuple(example.shape),
        all_slots=tuple(_slot(host, staged, i) for i in range(len(staged.slots))),
        blueprints=fitting_blueprints(kinds),
        vocabulary=staged.output[-1] if host.causal else 0,
        isolates="sequences" not in kinds,
        dropout=float(any(isinstance(part, KeyedDropout) for part in private.modules())),
    )
    with _AttentionCalls() as calls:
        _check_stages(bound, batch)
    bound.set_numbers(attends=calls.found)
    return bound


def _check_stages(host: ModuleHost, batch: Tensor) -> None:
    """Raise ConfigError unless the stages run for several networks at once, without draws of their
    own and without a memory.
    """
    rows = HostRows(
        {leaf.name: torch.empty(ROWS, *leaf.shape, device="meta") for leaf in host.leaves},
        (),
        None,
        torch.zeros(ROWS, 5, dtype=torch.int64, device="meta"),  # in training, which may draw
    )
    bodies = [stage.body for stage in host.staged.stages]  # type: ignore[union-attr]
    memories = [_Memory(host.name, body) for body in bodies]
    constants = {
        path: _constant_on(host, path, torch.float32, batch.device) for path in host.buffers
    }
    versions = {path: count_writes(x) for path, x in constants.items()}
    x: Any = host.embed(batch.expand(ROWS, *batch.shape))
    try:
        for i in range(len(host.all_slots)):
            x = host.stage(i, x, rows)
        host.head(x, rows)
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        wrong = f"the module fails for several networks at once: {line}"
        if "random" in line:
            wrong = (
                "expected a module without draws of its own, got some in its forward pass: use "
                "nn.Dropout, which draws from the random streams of its env"
            )
        raise ConfigError(f"host {host.name}: {wrong}") from error
    changed = [path for path, x in constants.items() if count_writes(x) != versions[path]]
    for memory in memories:
        memory.check(changed)


def _tensors(part: Any) -> dict[str, Tensor]:
    """Return the tensors of a module itself besides its parameters."""
    held: dict[str, Any] = {**vars(part), **dict(part.named_buffers(recurse=False))}
    return {key: value for key, value in held.items() if isinstance(value, Tensor)}


class _Memory:
    """Tensors of a module besides its parameters, as they were."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self._name = name
        self._module = module
        self._before = self._look()

    def _look(self) -> dict[str, tuple[int, int]]:
        return {
            f"{path}.{key}".lstrip("."): (id(value), count_writes(value))
            for path, part in submodules(self._module)
            for key, value in _tensors(part).items()
        }

    def check(self, changed: Sequence[str] = ()) -> None:
        """Raise ConfigError if one has changed since, or is new."""
        after = self._look()
        wrong = [*changed, *(path for path in after if after[path] != self._before.get(path))]
        if wrong:
            raise ConfigError(
                f"host {self._name}: expected a module without a state besides its parameters, got "
                f"{wrong[0]}, which the forward pass changes: compute it anew in every pass"
            )


def _slot(host: ModuleHost, staged: StagedModule, i: int) -> SlotSpec:
    shape = staged.shapes[i]
    path = staged.slots[i].removesuffix(".slot")
    name = format_slot(0, i) if host.slot_names is None else host.slot_names[path]
    channels, size = (shape[0], shape[1:]) if len(shape) == 3 else (shape[-1], shape[:-1])
    return SlotSpec(name, channels, tuple(size), execution=i)


def fitting_blueprints(kinds: set[str]) -> tuple[str, ...]:
    """Return the names of the registered blueprints that fit features of all kinds."""
    return tuple(name for name in BLUEPRINTS.builtin() if kinds <= set(BLUEPRINTS[name].fits))


def _prepare(host: ModuleHost) -> tuple[nn.Module, dict[int, str]]:
    """Return a copy of the module for stages, and the names of its tensors in the user's module."""
    module: Any = copy.deepcopy(host.module)
    names = {id(x): name for name, x in (*module.named_parameters(), *module.named_buffers())}
    for path, part in submodules(module):
        if getattr(part, "inplace", False):
            part.inplace = False  # an input may be kept for a later stage
        if isinstance(part, _DROPOUTS):
            place = sum(isinstance(other, KeyedDropout) for other in module.modules())
            axes = None if type(part) is nn.Dropout else 1
            module = _replace(module, path, KeyedDropout(part.p, place, axes))
    _forget_statistics(module)
    for path in host.slot_names or {}:
        try:
            part = module.get_submodule(path)
        except AttributeError:
            known = ", ".join(name for name, _ in module.named_children())
            raise ConfigError(
                f"host {host.name}: slots: expected names of submodules ({known}, ...), got {path}"
            ) from None
        module = _replace(module, path, _WithSlot(part))
    return module.eval(), names


def _replace(module: nn.Module, path: str, part: nn.Module) -> nn.Module:
    """Put a part in the place of a submodule."""
    if not path:
        return part
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, part)
    return module
