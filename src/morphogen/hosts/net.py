"""Fixed description of the networks of a run: host, enabled slots, and the blueprints behind the
codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from torch import Tensor

from morphogen.config.host import Host
from morphogen.config.parts import BLUEPRINTS
from morphogen.errors import ConfigError
from morphogen.hosts.answers import CLASS_LABELS, Criterion
from morphogen.hosts.host_networks import HostNetworks
from morphogen.hosts.layout import ParamLayout
from morphogen.hosts.optim import SGD, Optimizer
from morphogen.hosts.precision import FULL, Precision
from morphogen.hosts.schedule import RateSchedule
from morphogen.hosts.seed_module import Modules, gate_layout, seed_layout
from morphogen.hosts.weights import read_weights
from morphogen.state.schema import Sizes
from morphogen.vocab.blueprint import Blueprint, assign_codes
from morphogen.vocab.slot import SlotSpec


def networks_of(host: Host) -> HostNetworks:
    """Return the networks of a host: of the class that it names, else the host itself."""
    if host.computed_by:
        return resolve_name(host.computed_by)(host)
    if not isinstance(host, HostNetworks):
        missing = [
            name for name in vars(HostNetworks) if name[0] != "_" and not hasattr(host, name)
        ]
        raise ConfigError(f"host {type(host).__name__}: expected the methods {', '.join(missing)}")
    return host


def _derived_field() -> Any:
    return field(init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Net:
    """Host and enabled slots, in slot order: index s of every slot axis is the position in `slots`.
    Hashable.

    Args:
        host: description of the host, with its networks.
        slots: places for seeds, as `host.pick_slots` orders them.
        kinds: name of every blueprint code; () = the blueprints of the host.
        precision: number format of the features.
        weights: files of networks from which envs start, one for each env in turn.
        optimizer: of hosts and seeds.
        schedule: of their learning rates; None = constant.
        freeze: patterns of names of host parameters that do not train.
        criterion: loss and score of the outputs.
        all_classes: every env uses all classes of its host.

    Raises: ConfigError for a host without the methods of `HostNetworks`, for a file with other
        parameters, and for a pattern that no parameter matches.

    Example:
        >>> import morphogen as mg
        >>> host = mg.CnnSpec(
        ...     base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10
        ... )
        >>> net = mg.Net(host, host.pick_slots(("r1c0", "r0c0")))
        >>> (
        ...     net.names,
        ...     net.counts[0][mg.Blueprint.NORM],
        ... )  # slots in slot order; parameters of a seed in slot 0
        (('r0c0', 'r1c0'), 9)
    """

    host: Host
    slots: tuple[SlotSpec, ...]
    kinds: tuple[str, ...] = ()
    """Name of every blueprint code (`vocab.blueprint`); () = the blueprints of the host."""
    precision: Precision = FULL
    """Of features."""
    weights: tuple[str, ...] = ()
    """Files of networks from which envs start, one for each env in turn."""
    optimizer: Optimizer = SGD
    """Of hosts and seeds."""
    schedule: RateSchedule | None = None
    """Of their learning rates; None: constant."""
    freeze: tuple[str, ...] = ()
    """Patterns of names of host parameters that do not train."""
    criterion: Criterion = CLASS_LABELS
    """Loss and score of the outputs."""
    all_classes: bool = False
    """Every env uses all classes of its host: no logit is masked."""
    networks: HostNetworks = field(init=False, repr=False, compare=False)
    """Of the host."""
    modules: Modules = field(init=False, repr=False, compare=False)
    """Blueprints of the run by code."""
    stages: tuple[tuple[int | None, bool], ...] = _derived_field()
    """Per slot of the host: position in `slots`, pooled."""
    execution: tuple[int, ...] = _derived_field()
    """Positions in `slots`, in the order of the forward pass."""
    counts: tuple[tuple[int, ...], ...] = _derived_field()
    """[S][13] parameters of every blueprint in every slot."""
    gate_counts: tuple[int, ...] = _derived_field()
    """[S] parameters of the gate network of every slot."""
    seed_sizes: tuple[int, ...] = _derived_field()
    """[S] P_s: the largest blueprint of the slot plus its gate network."""
    host_size: int = _derived_field()
    """P: parameters of the host at full width."""
    host_layout: ParamLayout = field(init=False, repr=False, compare=False)
    frozen: frozenset[str] = _derived_field()
    """Names of the host parameters that do not train."""
    trained_share: float = _derived_field()
    """Of the host parameters."""
    seed_layouts: tuple[Mapping[Blueprint, ParamLayout], ...] = _derived_field()
    """[S]."""
    gate_layouts: tuple[ParamLayout, ...] = _derived_field()
    """[S]."""
    start: tuple[Tensor, ...] = _derived_field()
    """Networks from which envs start, of the files, else of `Host.start_values`; () = all are
    drawn.  Hosts float32 [K, P], NaN = drawn; and of seeds that are kept for good: blueprint (-1 =
    empty), algorithm and alpha float32 [K, S, 3], and their parameters float32 [K, P_s] per slot.
    """

    def __post_init__(self) -> None:
        slots = self.slots
        kinds = self.kinds or assign_codes(BLUEPRINTS.adopt(kind) for kind in self.host.blueprints)
        modules = {
            code: BLUEPRINTS[self.host.module_name(name)]
            for code, name in zip(Blueprint, kinds, strict=True)
            if name
        }
        networks = networks_of(self.host)
        layout = networks.layout()
        seed_layouts = tuple(
            {code: seed_layout(module, slot.channels) for code, module in modules.items()}
            for slot in slots
        )
        counts = tuple(
            tuple(layouts[code].size if code in layouts else 0 for code in Blueprint)
            for layouts in seed_layouts
        )
        gate_layouts = tuple(gate_layout(slot.channels) for slot in slots)
        gates = tuple(layout.size for layout in gate_layouts)
        frozen = layout.find(self.freeze, "host.freeze")
        free = [leaf.size for leaf in layout.leaves if leaf.name not in frozen]
        positions = {slot.name: s for s, slot in enumerate(slots)}
        derived = {
            "kinds": kinds,
            "networks": networks,
            "modules": modules,
            "stages": tuple(
                (positions.get(slot.name), slot.pooled) for slot in self.host.all_slots
            ),
            "execution": tuple(sorted(range(len(slots)), key=lambda s: slots[s].execution)),
            "counts": counts,
            "gate_counts": gates,
            "seed_sizes": tuple(max(row) + gate for row, gate in zip(counts, gates, strict=True)),
            "host_size": self.host.params(),
            "host_layout": layout,
            "frozen": frozen,
            "trained_share": sum(free) / max(layout.size, 1),
            "seed_layouts": seed_layouts,
            "gate_layouts": gate_layouts,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        drawn = self.host.start_values()
        start = read_weights(self) if self.weights else () if drawn is None else (drawn,)
        object.__setattr__(self, "start", start)

    def layouts(self, s: int, codes: tuple[Blueprint, ...]) -> tuple[ParamLayout, ...]:
        """Return the layouts of blueprints in slot s, then of the gate."""
        return (*[self.seed_layouts[s][code] for code in codes], self.gate_layouts[s])

    def macs(self) -> dict[str, Any]:
        """Return multiply-accumulates of one sample, None if not known: of host and seeds, by
        blueprint and slot.
        """
        seeds = {
            module.name: {slot.name: module.macs(slot) for slot in self.slots}
            for module in self.modules.values()
        }
        return {"host": self.host.macs(), "seeds": seeds}

    @property
    def names(self) -> tuple[str, ...]:
        """Slot names, in slot order."""
        return tuple(slot.name for slot in self.slots)

    def sizes(self, *, envs: int, window: int, classes: int, table: int = 0) -> Sizes:
        """Return the lengths of the axes of a state of these envs."""
        fixed = (envs, self.names, self.host_size, self.seed_sizes, window, classes, table)
        return Sizes(*fixed, self.optimizer.moments, self.optimizer.counts)
