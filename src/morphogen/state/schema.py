"""The schema of the state: one row a leaf with dtype, shape, unit and empty value; `describe`, `init`, edge checks."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.state.env import Clock, EnvState, Governor, Host, Instance, Signals, Slots

HISTORY = 5


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """One leaf.  `shape`: letters after the env axis, looked up in the sizes of the run."""

    name: str
    dtype: torch.dtype
    shape: tuple[str, ...]
    unit: str
    empty: float | int | bool = 0


def _state_leaves(
    dtype: torch.dtype, shape: tuple[str, ...], rows: Mapping[str, str], empty: float = 0
) -> tuple[StateLeaf, ...]:
    kind = bool if dtype is torch.bool else float if dtype.is_floating_point else int  # a where() keeps the dtype
    return tuple(StateLeaf(name, dtype, shape, unit, kind(empty)) for name, unit in rows.items())


_F, _I, _B = torch.float32, torch.int64, torch.bool
_S = ("S",)

HOST = _state_leaves(_F, ("P",), {"params": "1", "momentum": "1"})
SLOTS = (
    *_state_leaves(_I, _S, {"stage": "Stage"}, 1),
    *_state_leaves(_I, _S, {"previous_stage": "Stage", "epochs_in_stage": "epochs"}),
    *_state_leaves(_I, _S, {"previous_epochs_in_stage": "epochs", "age": "epochs"}),
    *_state_leaves(_I, _S, {"blueprint": "Blueprint"}, -1),
    *_state_leaves(_I, _S, {"algorithm": "Algorithm", "tempo": "epochs"}),
    *_state_leaves(_F, _S, {"blend_target": "alpha"}),
    *_state_leaves(_I, _S, {"blend_curve": "Curve"}),
    *_state_leaves(_F, _S, {"alpha": "alpha", "alpha_start": "alpha", "alpha_target": "alpha"}),
    *_state_leaves(_I, _S, {"alpha_mode": "AlphaMode", "alpha_curve": "Curve"}),
    *_state_leaves(_F, _S, {"alpha_steepness": "1"}, 12.0),
    *_state_leaves(_I, _S, {"alpha_steps": "ticks", "alpha_done": "ticks"}),
    *_state_leaves(_F, _S, {"gradient_norm": "L2", "gradient_health": "0..1"}),
    *_state_leaves(_B, _S, {"vanishing": "flag", "exploding": "flag", "gradient_valid": "flag"}),
    *_state_leaves(_F, _S, {"gradient_ratio": "1"}),
    *_state_leaves(_B, _S, {"gradient_ratio_valid": "flag"}),
    *_state_leaves(_I, _S, {"skip_streak": "minibatches"}),
    *_state_leaves(_F, _S, {"accuracy_at_germination": "points", "accuracy_at_stage_start": "points"}),
    *_state_leaves(_F, _S, {"accuracy_at_blending": "points"}),
    *_state_leaves(_B, _S, {"accuracy_at_blending_valid": "flag"}),
    *_state_leaves(_F, _S, {"contribution": "points"}),
    *_state_leaves(_B, _S, {"contribution_valid": "flag"}),
    *_state_leaves(_F, _S, {"velocity": "points/epoch"}),
    *_state_leaves(_B, _S, {"velocity_valid": "flag"}),
    *_state_leaves(_I, _S, {"since_measured": "epochs"}),
    *_state_leaves(_F, _S, {"interaction_sum": "points", "boost_received": "points"}),
    *_state_leaves(_B, _S, {"interaction_valid": "flag"}),
)
SIGNALS = (
    *_state_leaves(_F, (), {"val_loss": "nats", "val_acc": "points"}),
    *_state_leaves(_B, (), {"measured": "flag"}),
    *_state_leaves(_F, (), {"train_loss": "nats", "train_acc": "points"}),
    *_state_leaves(_B, (), {"train_measured": "flag"}),
    *_state_leaves(_F, ("history",), {"loss_history": "nats", "acc_history": "points"}),
    *_state_leaves(_B, ("history",), {"history_valid": "flag"}),
    *_state_leaves(_F, (), {"loss_delta": "nats", "acc_delta": "points"}),
    *_state_leaves(_B, (), {"delta_valid": "flag"}),
    *_state_leaves(_F, (), {"best_acc": "points", "best_loss": "nats"}),
    *_state_leaves(_F, (), {"committed_acc": "points", "clean_improvement": "points"}),
    *_state_leaves(_B, (), {"clean_valid": "flag"}),
    *_state_leaves(_I, (), {"plateau": "epochs", "stable": "epochs"}),
    *_state_leaves(_B, (), {"stabilized": "flag"}),
    *_state_leaves(_I, (), {"last_op": "Op", "last_outcome": "Outcome"}, -1),
    *_state_leaves(_B, (), {"rolled_back": "flag"}),
    *_state_leaves(_I, (), {"rollbacks": "count"}),
)
GOVERNOR = (
    *_state_leaves(_F, ("window",), {"window": "nats"}),
    *_state_leaves(_I, (), {"count": "epochs", "streak": "epochs"}),
    *_state_leaves(_I, (), {"snapshot_epoch": "epoch"}, -1),
)
INSTANCE = (
    *_state_leaves(_F, (), {"width": "share", "data_share": "share"}, 1.0),
    *_state_leaves(_F, (), {"label_noise": "share"}),
    *_state_leaves(_I, (), {"classes": "count"}),
    *_state_leaves(_I, (), {"reach": "pixels"}, 1),
    *_state_leaves(_F, (), {"param_price": "1"}),
    *_state_leaves(_I, (), {"samples": "count"}),
    *_state_leaves(_F, (), {"baseline_loss": "nats"}),
    *_state_leaves(_I, ("C",), {"class_of": "label"}, -1),
    *_state_leaves(torch.int32, ("N",), {"usable": "sample"}),
)
CLOCK = _state_leaves(_I, (), {"episode": "round", "epoch": "epochs"})
KEY = StateLeaf("key", _I, ("key",), "words")
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
    """The numbers behind the axis letters of one run."""

    envs: int
    slots: tuple[str, ...]  # names, in slot order
    host_params: int
    seed_params: tuple[int, ...]  # per slot, gate included
    window: int
    classes: int
    table: int = 0  # length of the table of usable samples; 0 = identity

    def axis(self, letter: str) -> int:
        """Length of an axis."""
        known = {"S": len(self.slots), "P": self.host_params, "history": HISTORY, "window": self.window}
        return {**known, "C": self.classes, "N": self.table, "key": 3}[letter]


def empty_leaf(leaf: StateLeaf, sizes: Sizes, device: torch.device | str = "cpu") -> Tensor:
    """The empty value of a leaf for all envs."""
    shape = (sizes.envs, *(sizes.axis(letter) for letter in leaf.shape))
    return torch.full(shape, leaf.empty, dtype=leaf.dtype, device=device)


def empty_part(name: str, sizes: Sizes, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """All leaves of a part, empty."""
    return {leaf.name: empty_leaf(leaf, sizes, device) for leaf in PARTS[name]}


def empty_seeds(sizes: Sizes, device: torch.device | str = "cpu") -> TensorDict:
    """Seed storage without any seed: zeros."""
    rows = {
        name: {key: torch.zeros(sizes.envs, count, device=device) for key in ("params", "momentum")}
        for name, count in zip(sizes.slots, sizes.seed_params, strict=True)
    }
    return TensorDict(rows, batch_size=[sizes.envs], device=device)


def empty_state(sizes: Sizes, key: Tensor, ledger: TensorDict) -> EnvState:
    """Envs without seeds, all leaves empty.  key int64 [E, 3]; ledger [E] as the reward rule starts it."""
    device = key.device
    lead = {"batch_size": [sizes.envs], "device": device}

    def snapshot() -> dict:
        return {
            "host": Host(**empty_part("host", sizes, device), **lead),
            "seeds": empty_seeds(sizes, device),
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


def format_schema() -> str:
    """The schema as a table: part, leaf, dtype, shape, unit, empty value."""
    rows = [("part", "leaf", "dtype", "shape", "unit", "empty")]
    for name, leaves in PARTS.items():
        rows += [(name, leaf.name, *_leaf_cells(leaf)) for leaf in leaves]
    rows.append(("seeds", "<slot>.params, .momentum", "float32", "[E, P_s]", "1", "0"))
    rows.append(("ledger", "as the reward rule declares", "float32", "[E, ...]", "1", "0"))
    rows.append(("governor", "host, seeds, slots, signals", "as above", "as above", "last healthy snapshot", ""))
    rows.append(("key", "key", *_leaf_cells(KEY)))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _leaf_cells(leaf: StateLeaf) -> tuple[str, str, str, str]:
    shape = ", ".join(("E", *(str(HISTORY) if axis == "history" else axis for axis in leaf.shape)))
    return str(leaf.dtype).removeprefix("torch."), f"[{shape}]", leaf.unit, str(leaf.empty)


def check_state(state: EnvState, sizes: Sizes) -> None:
    """Edge check: every leaf has the declared dtype and shape; else a ValueError that names it."""
    for name, leaf in ((name, leaf) for name, leaves in PARTS.items() for leaf in leaves):
        _check_leaf(f"{name}.{leaf.name}", getattr(getattr(state, name), leaf.name), leaf, sizes)
    _check_leaf("key", state.key, KEY, sizes)
    stored = itertools.product(zip(sizes.slots, sizes.seed_params, strict=True), ("params", "momentum"))
    for (slot, count), key in stored:
        found = tuple(state.seeds[slot, key].shape)
        if found != (sizes.envs, count):
            raise ValueError(f"seeds.{slot}.{key} has shape {found}; want {(sizes.envs, count)}")


def _check_leaf(path: str, value: Tensor, leaf: StateLeaf, sizes: Sizes) -> None:
    shape = (sizes.envs, *(sizes.axis(letter) for letter in leaf.shape))
    floating = leaf.dtype.is_floating_point and value.dtype.is_floating_point
    if tuple(value.shape) != shape or (value.dtype != leaf.dtype and not floating):
        raise ValueError(f"{path} is {value.dtype} {tuple(value.shape)}; want {leaf.dtype} {shape}")
