"""Schema of the state: one row per leaf with dtype, shape and empty value; the empty state and the
edge check.
"""

from dataclasses import dataclass
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
from morphogen.state.tree_ops import get_branches, get_leaves

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
    dtypes: dict[torch.dtype, str] | None = None,
    empty: dict[str, float] | None = None,
    shapes: dict[str, tuple[str, ...]] | None = None,
) -> tuple[StateLeaf, ...]:
    """Leaves of a part in the order of its fields: float32 unless in `dtypes`, empty value 0 unless
    in `empty`.
    """
    dtype_of = {name: dtype for dtype, names in (dtypes or {}).items() for name in names.split()}
    leaves = []
    for name in (name for name, kind in part.__annotations__.items() if kind is Tensor):
        dtype = dtype_of.get(name, torch.float32)
        # a where() keeps the dtype
        kind = bool if dtype is torch.bool else float if dtype.is_floating_point else int
        leaves.append(
            StateLeaf(name, dtype, (shapes or {}).get(name, axes), kind((empty or {}).get(name, 0)))
        )
    return tuple(leaves)


_I = torch.int64
_B = torch.bool

HOST = _leaves(HostState, ("P",))
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
GOVERNOR = _leaves(
    Governor,
    dtypes={_I: "count streak snapshot_epoch"},
    empty={"snapshot_epoch": -1},
    shapes={"window": ("window",)},
)
INSTANCE = _leaves(
    Instance,
    dtypes={_I: "classes reach samples class_of regime view_code", torch.int32: "usable"},
    empty={"width": 1, "data_share": 1, "reach": 1, "class_of": -1},
    shapes={"class_of": ("C",), "usable": ("N",)},
)
CLOCK = _leaves(Clock, dtypes={_I: "episode epoch"})
SCALING = _leaves(LossScaling, dtypes={_I: "good_minibatches"}, empty={"loss_scale": 65_536.0})
KEY = StateLeaf("key", _I, ("key",))
PARTS: dict[str, tuple[StateLeaf, ...]] = {
    **{"host": HOST, "slots": SLOTS, "signals": SIGNALS},
    **{"governor": GOVERNOR, "instance": INSTANCE, "clock": CLOCK, "scaling": SCALING},
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

    def axis(self, letter: str) -> int:
        """Return the length of an axis of `StateLeaf.shape`."""
        sizes = {
            "S": len(self.slots),
            "P": self.host_params,
            "history": HISTORY,
            "window": self.window,
        }
        return {**sizes, "C": self.classes, "N": self.table, "key": 3}[letter]


def empty_part(name: str, sizes: Sizes, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return all leaves of a part of `PARTS` for all envs, empty."""
    return {
        leaf.name: torch.full(_shape(leaf, sizes), leaf.empty, dtype=leaf.dtype, device=device)
        for leaf in PARTS[name]
    }


def _shape(leaf: StateLeaf, sizes: Sizes) -> tuple[int, ...]:
    return (sizes.envs, *(sizes.axis(letter) for letter in leaf.shape))


def empty_state(sizes: Sizes, key: Tensor, ledger: TensorDict) -> EnvState:
    """Return envs without seeds, all leaves empty.  key int64 [E, 3]; ledger [E]: initial state of
    the reward rule.
    """
    device = key.device
    lead = {"batch_size": [sizes.envs], "device": device}

    def snapshot() -> dict[str, Any]:
        leaves = "params", "momentum"
        seeds = {
            name: {
                leaf: torch.zeros(sizes.envs, count, dtype=torch.float32, device=device)
                for leaf in leaves
            }
            for name, count in zip(sizes.slots, sizes.seed_params, strict=True)
        }
        return {
            "host": HostState(**empty_part("host", sizes, device), **lead),
            "seeds": TensorDict(seeds, **lead),
            "slots": Slots(**empty_part("slots", sizes, device), **lead),
            "signals": Signals(**empty_part("signals", sizes, device), **lead),
        }

    return EnvState(
        **snapshot(),
        ledger=ledger,
        governor=Governor(**empty_part("governor", sizes, device), **snapshot(), **lead),
        instance=Instance(**empty_part("instance", sizes, device), **lead),
        clock=Clock(**empty_part("clock", sizes, device), **lead),
        scaling=LossScaling(**empty_part("scaling", sizes, device), **lead),
        key=key,
        **lead,
    )


def check_state(state: EnvState, sizes: Sizes) -> None:
    """Raise ValueError for the first leaf of another dtype or shape; floating-point leaves may have
    any precision.
    """
    leaves = [(part, leaf) for part in PARTS for leaf in PARTS[part]]
    rows = [
        (f"{part}.{leaf.name}", getattr(getattr(state, part), leaf.name), leaf)
        for part, leaf in leaves
    ]
    for path, value, leaf in (*rows, ("key", state.key, KEY)):
        floating = leaf.dtype.is_floating_point and value.dtype.is_floating_point
        if value.shape != _shape(leaf, sizes) or (value.dtype != leaf.dtype and not floating):
            got = f"{value.dtype} {tuple(value.shape)}"
            raise ValueError(f"{path}: expected {leaf.dtype} {_shape(leaf, sizes)}, got {got}")
    seeds = get_branches(state.seeds)
    for slot, count in zip(sizes.slots, sizes.seed_params, strict=True):
        for name, value in get_leaves(seeds[slot]).items():
            if value.shape != (sizes.envs, count):
                raise ValueError(
                    f"seeds.{slot}.{name}: expected {(sizes.envs, count)}, got {tuple(value.shape)}"
                )
