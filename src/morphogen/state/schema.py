"""Schema of the state: one row per leaf with dtype, shape and empty value; the empty state and the edge check."""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.env import Clock, EnvState, Governor, Host, Instance, Signals, Slots

HISTORY = 5


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """One leaf of a part.  `shape`: letters of the axes after E, see `Sizes.axis`; units: see `env`."""

    name: str
    dtype: torch.dtype
    shape: tuple[str, ...]
    empty: float | int | bool = 0


def _leaves(dtype: torch.dtype, shape: tuple[str, ...], *names: str, empty: float = 0) -> tuple[StateLeaf, ...]:
    kind = bool if dtype is torch.bool else float if dtype.is_floating_point else int  # a where() keeps the dtype
    return tuple(StateLeaf(name, dtype, shape, kind(empty)) for name in names)


_F, _I, _B = torch.float32, torch.int64, torch.bool
_S = ("S",)

HOST = _leaves(_F, ("P",), "params", "momentum")
SLOTS = (
    *_leaves(_I, _S, "stage", empty=1),
    *_leaves(_I, _S, "previous_stage", "epochs_in_stage", "previous_epochs_in_stage", "age"),
    *_leaves(_I, _S, "blueprint", empty=-1),
    *_leaves(_I, _S, "algorithm", "tempo"),
    *_leaves(_F, _S, "blend_target"),
    *_leaves(_I, _S, "blend_curve"),
    *_leaves(_F, _S, "alpha", "alpha_start", "alpha_target"),
    *_leaves(_I, _S, "alpha_mode", "alpha_curve"),
    *_leaves(_F, _S, "alpha_steepness", empty=12.0),
    *_leaves(_I, _S, "alpha_steps", "alpha_done"),
    *_leaves(_F, _S, "gradient_norm", "gradient_health"),
    *_leaves(_B, _S, "vanishing", "exploding", "gradient_valid"),
    *_leaves(_F, _S, "gradient_ratio"),
    *_leaves(_B, _S, "gradient_ratio_valid"),
    *_leaves(_I, _S, "skip_streak"),
    *_leaves(_F, _S, "accuracy_at_germination", "accuracy_at_stage_start", "accuracy_at_blending"),
    *_leaves(_B, _S, "accuracy_at_blending_valid"),
    *_leaves(_F, _S, "contribution"),
    *_leaves(_B, _S, "contribution_valid"),
    *_leaves(_F, _S, "velocity"),
    *_leaves(_B, _S, "velocity_valid"),
    *_leaves(_I, _S, "since_measured"),
    *_leaves(_F, _S, "interaction_sum", "boost_received"),
    *_leaves(_B, _S, "interaction_valid"),
)
SIGNALS = (
    *_leaves(_F, (), "val_loss", "val_acc"),
    *_leaves(_B, (), "measured"),
    *_leaves(_F, (), "train_loss", "train_acc"),
    *_leaves(_B, (), "train_measured"),
    *_leaves(_F, ("history",), "loss_history", "acc_history"),
    *_leaves(_B, ("history",), "history_valid"),
    *_leaves(_F, (), "loss_delta", "acc_delta"),
    *_leaves(_B, (), "delta_valid"),
    *_leaves(_F, (), "best_acc", "best_loss", "committed_acc", "clean_improvement"),
    *_leaves(_B, (), "clean_valid"),
    *_leaves(_I, (), "plateau", "stable"),
    *_leaves(_B, (), "stabilized"),
    *_leaves(_I, (), "last_op", "last_outcome", empty=-1),
    *_leaves(_B, (), "rolled_back"),
    *_leaves(_I, (), "rollbacks"),
)
GOVERNOR = (
    *_leaves(_F, ("window",), "window"),
    *_leaves(_I, (), "count", "streak"),
    *_leaves(_I, (), "snapshot_epoch", empty=-1),
)
INSTANCE = (
    *_leaves(_F, (), "width", "data_share", empty=1.0),
    *_leaves(_F, (), "label_noise"),
    *_leaves(_I, (), "classes"),
    *_leaves(_I, (), "reach", empty=1),
    *_leaves(_F, (), "param_price"),
    *_leaves(_I, (), "samples"),
    *_leaves(_F, (), "baseline_loss"),
    *_leaves(_I, ("C",), "class_of", empty=-1),
    *_leaves(torch.int32, ("N",), "usable"),
)
CLOCK = _leaves(_I, (), "episode", "epoch")
KEY = StateLeaf("key", _I, ("key",))
PARTS: dict[str, tuple[StateLeaf, ...]] = {
    "host": HOST,
    "slots": SLOTS,
    "signals": SIGNALS,
    "governor": GOVERNOR,
    "instance": INSTANCE,
    "clock": CLOCK,
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
        sizes = {"S": len(self.slots), "P": self.host_params, "history": HISTORY, "window": self.window}
        return {**sizes, "C": self.classes, "N": self.table, "key": 3}[letter]


def empty_part(name: str, sizes: Sizes, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return all leaves of a part of `PARTS` for all envs, empty."""
    return {
        leaf.name: torch.full(_shape(leaf, sizes), leaf.empty, dtype=leaf.dtype, device=device) for leaf in PARTS[name]
    }


def _shape(leaf: StateLeaf, sizes: Sizes) -> tuple[int, ...]:
    return (sizes.envs, *(sizes.axis(letter) for letter in leaf.shape))


def empty_state(sizes: Sizes, key: Tensor, ledger: TensorDict) -> EnvState:
    """Return envs without seeds, all leaves empty.  key int64 [E, 3]; ledger [E]: initial state of the reward rule."""
    device = key.device
    lead = {"batch_size": [sizes.envs], "device": device}

    def snapshot() -> dict:
        seeds = {
            name: {leaf: torch.zeros(sizes.envs, count, device=device) for leaf in ("params", "momentum")}
            for name, count in zip(sizes.slots, sizes.seed_params, strict=True)
        }
        return {
            "host": Host(**empty_part("host", sizes, device), **lead),
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
        key=key,
        **lead,
    )


def check_state(state: EnvState, sizes: Sizes) -> None:
    """Check dtype and shape of every leaf; floating-point leaves may have any precision.

    Raises: ValueError with the name of the first leaf that does not fit.
    """
    leaves = [
        (f"{part}.{leaf.name}", getattr(getattr(state, part), leaf.name), leaf)
        for part in PARTS
        for leaf in PARTS[part]
    ]
    for path, value, leaf in (*leaves, ("key", state.key, KEY)):
        floating = leaf.dtype.is_floating_point and value.dtype.is_floating_point
        if value.shape != _shape(leaf, sizes) or (value.dtype != leaf.dtype and not floating):
            got = f"{value.dtype} {tuple(value.shape)}"
            raise ValueError(f"{path}: expected {leaf.dtype} {_shape(leaf, sizes)}, got {got}")
    for slot, count in zip(sizes.slots, sizes.seed_params, strict=True):
        for name, value in state.seeds[slot].items():
            if value.shape != (sizes.envs, count):
                raise ValueError(f"seeds.{slot}.{name}: expected {(sizes.envs, count)}, got {tuple(value.shape)}")
