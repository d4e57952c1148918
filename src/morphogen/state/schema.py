"""Schema of the state: one row per leaf with dtype, shape and empty value; the empty state."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.env import (
    Clock,
    EnvState,
    Governor,
    HostState,
    Instance,
    LossScaling,
    Signals,
    Slots,
)

HISTORY = 5


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """One leaf of a part.  `shape`: letters of the axes after E, see `Sizes.axis`; units: see
    `env`.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[str, ...]
    empty: float | int | bool = 0


def _leaves(
    part: type,
    axes: tuple[str, ...] = (),
    *,
    dtypes: Mapping[torch.dtype, str] = MappingProxyType({}),
    empty: Mapping[str, float] = MappingProxyType({}),
    shapes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> tuple[StateLeaf, ...]:
    """Leaves of a part in the order of its fields: float32 unless in `dtypes`, empty value 0 unless
    in `empty`.
    """
    dtype_of = {name: dtype for dtype, names in dtypes.items() for name in names.split()}
    leaves = []
    for name in (name for name, kind in part.__annotations__.items() if kind is Tensor):
        dtype = dtype_of.get(name, torch.float32)
        leaves.append(StateLeaf(name, dtype, shapes.get(name, axes), empty.get(name, 0)))
    return tuple(leaves)


_I = torch.int64
_B = torch.bool

SLOTS = _leaves(
    Slots,
    ("S",),
    dtypes={
        _I: "stage previous_stage epochs_in_stage previous_epochs_in_stage age blueprint "
        "algorithm tempo blend_curve"
        " alpha_mode alpha_curve alpha_steps alpha_done skip_streak since_measured",
        _B: "vanishing exploding gradient_valid gradient_ratio_valid accuracy_at_blending_valid "
        "contribution_valid velocity_valid interaction_valid",
    },
    empty={"stage": 1, "blueprint": -1, "alpha_steepness": 12.0},
)
SIGNALS = _leaves(
    Signals,
    dtypes={
        _I: "plateau stable last_op last_outcome rollbacks",
        _B: "measured train_measured history_valid delta_valid clean_valid stabilized rolled_back",
    },
    empty={"last_op": -1, "last_outcome": -1},
    shapes=dict.fromkeys(("loss_history", "acc_history", "history_valid"), ("history",)),
)
INSTANCE = _leaves(
    Instance,
    dtypes={_I: "classes reach samples class_of regime view_code", torch.int32: "usable"},
    empty={"width": 1, "data_share": 1, "reach": 1, "class_of": -1},
    shapes={"class_of": ("C",), "usable": ("N",)},
)
PARTS: dict[str, tuple[StateLeaf, ...]] = {
    "host": _leaves(HostState, ("P",)),
    "slots": SLOTS,
    "signals": SIGNALS,
    "governor": _leaves(
        Governor,
        dtypes={_I: "count streak snapshot_epoch"},
        empty={"snapshot_epoch": -1},
        shapes={"window": ("window",)},
    ),
    "instance": INSTANCE,
    "clock": _leaves(Clock, dtypes={_I: "episode epoch"}),
    "scaling": _leaves(
        LossScaling, dtypes={_I: "good_minibatches"}, empty={"loss_scale": 65_536.0}
    ),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths of the axes of a run."""

    envs: int
    slots: tuple[str, ...]  # names, in slot order
    host_params: int
    seed_params: tuple[int, ...]  # per slot, gate included
    window: int
    classes: int
    table: int = 0  # length of the table of usable samples; 0 = the identity
    moments: tuple[str, ...] = ("momentum",)  # leaves of the optimiser, like the parameters
    counts: tuple[str, ...] = ()  # leaves of the optimiser, one number per network

    def axis(self, letter: str) -> int:
        """Return the length of an axis of `StateLeaf.shape`."""
        lengths = {
            "S": len(self.slots),
            "P": self.host_params,
            "history": HISTORY,
            "window": self.window,
            "C": self.classes,
            "N": self.table,
        }
        return lengths[letter]


def empty_part(name: str, sizes: Sizes, device: torch.device | str = "cpu", **branches: Any) -> Any:
    """Return a part of `PARTS` for all envs, [E], each leaf empty.  branches: trees in the part."""
    leaves = {
        leaf.name: torch.full(
            (sizes.envs, *map(sizes.axis, leaf.shape)), leaf.empty, dtype=leaf.dtype, device=device
        )
        for leaf in PARTS[name]
    }
    kind: Any = EnvState.__annotations__[name]
    return kind(**leaves, **branches, batch_size=[sizes.envs], device=device)


def _zeros(
    sizes: Sizes, leaves: tuple[str, ...], count: int, device: torch.device
) -> dict[str, Tensor]:
    """Leaves with a number per parameter, and the counts of the optimiser."""
    lengths = dict.fromkeys(leaves, count) | dict.fromkeys(sizes.counts, 1)
    return {
        leaf: torch.zeros(sizes.envs, length, dtype=torch.float32, device=device)
        for leaf, length in lengths.items()
    }


def _empty_seeds(sizes: Sizes, device: torch.device) -> TensorDict:
    seeds = {
        name: _zeros(sizes, ("params", *sizes.moments), count, device)
        for name, count in zip(sizes.slots, sizes.seed_params, strict=True)
    }
    return TensorDict(seeds, batch_size=[sizes.envs], device=device)


def _empty_host(sizes: Sizes, device: torch.device) -> HostState:
    leaves = _zeros(sizes, sizes.moments[1:], sizes.host_params, device)
    adaptive = TensorDict(leaves, batch_size=[sizes.envs], device=device)
    return empty_part("host", sizes, device, adaptive=adaptive)


def empty_state(sizes: Sizes, key: Tensor, ledger: TensorDict) -> EnvState:
    """Return envs without seeds, all leaves empty.  key int64 [E, 3]; ledger [E]: initial state of
    the reward rule.
    """
    device = key.device
    part = functools.partial(empty_part, sizes=sizes, device=device)
    snapshot = {name: part(name) for name in ("slots", "signals")}
    return EnvState(
        host=_empty_host(sizes, device),
        seeds=_empty_seeds(sizes, device),
        slots=part("slots"),
        signals=part("signals"),
        ledger=ledger,
        governor=part(
            "governor",
            host=_empty_host(sizes, device),
            seeds=_empty_seeds(sizes, device),
            **snapshot,
        ),
        instance=part("instance"),
        clock=part("clock"),
        scaling=part("scaling"),
        key=key,
        batch_size=[sizes.envs],
        device=device,
    )
