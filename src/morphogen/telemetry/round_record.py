"""Record of a round: arrays [T, E, ...] of what happened in its epochs, and what the levels keep of them.  No tensors.

`engine.reporter.build_record` lists the columns; the events of envs, slots and epochs are derived from them alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVELS
from morphogen.storage.codec import Array
from morphogen.vocab.action import RELEVANT
from morphogen.vocab.blueprint import CNN_KINDS, code_labels
from morphogen.vocab.stage import OCCUPIED, Fault, Panic, Stage

Record = Mapping[str, Array]  # leaves [E, ...] of one epoch
Columns = Mapping[str, Array]  # the same, [T, E, ...], of the epochs of a round

HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]
PENALTY = "governor"  # the reward component that a rollback pays; a rule without it charges nothing
STAGE_POINTS = ("stage_before", "stage_acted", "stage_ticked", "stage")  # the four points of an epoch
LEVEL_RANK = {name: rank for rank, name in enumerate(LEVELS)}
MINIMAL, NORMAL, DEBUG = LEVEL_RANK["minimal"], LEVEL_RANK["normal"], LEVEL_RANK[LEVEL_DEBUG]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Constants of a run that events need."""

    task: str
    slots: tuple[str, ...]
    components: tuple[str, ...]  # of the reward, in recorded order
    epochs: int  # per episode
    success_accuracy: float  # percent
    gamma: float
    envs: int  # of the whole run
    samples: int  # that a host is trained on, per epoch
    blueprints: tuple[str, ...] = code_labels(CNN_KINDS)  # name of every code
    layers: tuple[str, ...] = ()  # parameter tensors of the hosts
    first: int = 0  # global index of the first env in a record
    device: str = "cpu"  # of the envs
    host: dict[str, Any] = field(default_factory=dict)  # numbers of the host, for the manifest of a topology
    macs: dict[str, Any] = field(default_factory=dict)  # of `RunStarted`


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """Epochs of a round so far, and the ends of its episodes once it is over.

    At epochs without `detailed`, columns that only the debug level keeps are 0 in the file of the round.
    """

    facts: RunFacts
    round: int
    level: str  # of the run
    detailed: Array  # bool [T], epochs with the events of the debug level
    columns: Columns
    ends: Record  # [E, ...] of the episodes; empty while the round goes on

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.detailed)

    @property
    def is_over(self) -> bool:
        """Return whether the round has all its epochs."""
        return self.epochs == self.facts.epochs

    def row(self, epoch: int) -> Record:
        """Leaves of one epoch."""
        return {name: column[epoch] for name, column in self.columns.items()}

    def ranks(self) -> Array:
        """Level of every epoch as a rank, int [T]."""
        return np.where(self.detailed, DEBUG, LEVEL_RANK[self.level])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (*self.columns.values(), *self.ends.values()))


# Lowest level that keeps a column in every epoch; all others are of debug.
_KEPT = {
    MINIMAL: (
        *("stage_before", "stage_acted", "stage_ticked", "stage", "blueprint", "params", "alpha"),
        *("val_loss", "val_acc"),
        *("rolled_back", "panic", "panic_streak", "detectors", "committed_acc"),
        *("contribution", "contribution_valid", "stabilized"),
    ),
    NORMAL: (
        *("reward", "skipped", "forwards", "success", "op_effective", "host_params", "gate", "gate_passed"),
        *("train_loss", "train_acc", "train_valid", "host_gradient_norm", "gate_failed", "anomaly", "fault"),
    ),
}
COLUMN_RANK = {name: rank for rank, names in _KEPT.items() for name in names}
ABLATIONS = ("acc_table", "exact", "host_acc", "measured", "interaction_sum", "boost_received", "interaction_valid")
SPARSE = ("age", "epochs_in_stage", "algorithm", "tempo", "blend_target", "penalty", "snapshot_epoch", "seeds_pruned")
SPARSE += ("acc_before", "shapley", "loss_limit", "detector_ratio", "stable_epochs")
_VALID = {"contribution": "contribution_valid", "shapley": "contribution_valid"}
_VALID |= dict.fromkeys(("train_loss", "train_acc", "host_gradient_norm", "host_layer_norm"), "train_valid")


def kept_columns(record: RoundRecord) -> dict[str, Array]:
    """The columns that the level of each epoch keeps, 0 where it does not keep or no event reads them."""
    columns, ranks, detailed = record.columns, record.ranks(), record.detailed
    masks: dict[str, Array] = {name: ranks >= rank for name, rank in COLUMN_RANK.items()} | _sparse_masks(record)
    last = (np.arange(record.epochs) == record.facts.epochs - 1) & (ranks >= NORMAL)
    masks |= dict.fromkeys(ABLATIONS, detailed | last)
    masks["shapley"] = masks["shapley"] | _expand(last, masks["shapley"])
    kept = {}
    for name, column in columns.items():
        mask = masks.get(name, detailed)
        if name not in SPARSE and not mask.any():
            continue
        if name in _VALID:
            mask = _expand(mask, columns[_VALID[name]]) & columns[_VALID[name]]
        kept[name] = np.where(_expand(mask, column), column, np.zeros((), dtype=column.dtype))
    return kept


def _sparse_masks(record: RoundRecord) -> dict[str, Array]:
    """Masks of the columns of `SPARSE` that events below the debug level read, with all epochs at that level."""
    columns = record.columns
    moves, rolled_back = stage_changes(columns), columns["rolled_back"]
    soon = np.concatenate((moves[1:], np.zeros_like(moves[:1])))  # the slot moves in the epoch that follows
    born, kept, gone = (stage_entries(columns, to) for to in (Stage.GERMINATED, Stage.FOSSILIZED, Stage.PRUNED))
    ramps = born.copy()
    if record.is_over:
        ramps[-1] |= columns["stage"][-1] == Stage.FOSSILIZED  # of which a topology is made
    masks: dict[str, Any] = {
        **dict.fromkeys(("age", "epochs_in_stage"), moves | soon),
        **dict.fromkeys(("algorithm", "tempo", "blend_target"), ramps),
        **dict.fromkeys(("penalty", "snapshot_epoch", "seeds_pruned"), rolled_back),
        "acc_before": (born | kept | gone).any(axis=2),
        "shapley": _last_measured(kept, columns["contribution_valid"]),
        "loss_limit": rolled_back | (columns["anomaly"] != int(Panic.NONE)) | (columns["fault"] != int(Fault.NONE)),
        "detector_ratio": columns["detectors"].any(axis=3),
        "stable_epochs": first_stable(columns),
        "components": np.logical_or.accumulate(record.detailed[::-1])[::-1],  # totals need the epochs before
    }
    return {name: mask | _expand(record.detailed, mask) for name, mask in masks.items()}


def _expand(mask: Array, like: Array) -> Array:
    """Append axes of size 1."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))


def _last_measured(kept: Array, fresh: Array) -> Array:
    """Return where a seed was measured for the last time before it was fossilized: bool [T, E, S]."""
    needed, sought = np.zeros_like(fresh), np.zeros_like(fresh[0])
    for epoch in range(len(fresh) - 1, 0, -1):
        sought |= kept[epoch]
        needed[epoch - 1] = sought & fresh[epoch - 1]
        sought &= ~fresh[epoch - 1]
    return needed


def stage_changes(columns: Columns) -> Array:
    """Return whether a slot changes its stage in the epoch: bool [..., S]."""
    moves = [columns[before] != columns[after] for before, after in pairwise(STAGE_POINTS)]
    return moves[0] | moves[1] | moves[2]


def stage_entries(columns: Columns, stage: Stage) -> Array:
    """Return whether a slot entered a stage in the epoch: bool [..., S]."""
    code = int(stage)  # which numpy compares faster than a member of an enum
    came = [(columns[b] != code) & (columns[a] == code) for b, a in pairwise(STAGE_POINTS)]
    return came[0] | came[1] | came[2]


def first_stable(columns: Columns) -> Array:
    """Return whether the loss of the host settled for the first time in its episode: bool [T, E]."""
    return columns["stabilized"] & (np.cumsum(columns["stabilized"], axis=0) == 1)


def in_stages(stage: Array, stages: tuple[Stage, ...]) -> Array:
    """Return whether the stage is one of `stages`, a range of codes: bool."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))


@dataclass(frozen=True, slots=True)
class SlotHistory:
    """State of every slot after each epoch, arrays [T, E, S]; accuracies in percent."""

    alpha: Array
    age: Array
    epochs_in_stage: Array
    params: Array
    contribution: Array  # last measured
    shapley: Array
    contribution_valid: Array
    germination_accuracy: Array  # before the seed was there

    def at(self, epoch: int) -> "SlotHistory":
        """State after an epoch, arrays [E, S]; 0 before the first epoch (-1)."""
        rows = {item.name: getattr(self, item.name)[max(epoch, 0)] for item in fields(self)}
        return SlotHistory(**(rows if epoch >= 0 else {name: np.zeros_like(row) for name, row in rows.items()}))

    def before(self, epoch: int) -> "SlotHistory":
        """State before an epoch, its germinations noted."""
        return replace(self.at(epoch - 1), germination_accuracy=self.germination_accuracy[epoch])


def slot_history(columns: Columns) -> SlotHistory:
    """Counters as they stand after each epoch was closed; a seed that is gone has no contribution."""
    stage, occupied = columns["stage"], in_stages(columns["stage"], OCCUPIED)
    filled, germinated = stage != Stage.DORMANT, stage_entries(columns, Stage.GERMINATED)
    fresh = columns["contribution_valid"] & occupied
    stayed = np.where(stage == columns["stage_ticked"], columns["epochs_in_stage"], 0)
    accuracies = np.broadcast_to(columns["acc_before"][..., None], stage.shape)
    history = SlotHistory(
        alpha=columns["alpha"],
        age=np.where(occupied, columns["age"] + 1, np.where(filled, columns["age"], 0)),
        epochs_in_stage=np.where(filled, stayed + 1, 0),
        params=np.where(occupied, columns["params"], 0),
        contribution=np.where(fresh, columns["contribution"], 0),
        shapley=np.where(fresh, columns["shapley"], 0),
        contribution_valid=fresh.copy(),
        germination_accuracy=np.where(germinated, accuracies, 0),
    )
    for t in range(1, len(stage)):
        kept = occupied[t] & ~fresh[t]
        for name in ("contribution", "shapley", "contribution_valid"):
            array = getattr(history, name)
            array[t] = np.where(kept, array[t - 1], array[t])
        born = history.germination_accuracy
        born[t] = np.where(germinated[t], born[t], born[t - 1])
    return history


def add_penalty(columns: Columns, facts: RunFacts) -> dict[str, Array]:
    """The columns with what each env was charged for a rollback."""
    charged = columns["components"]
    penalty = -charged[..., facts.components.index(PENALTY)] if PENALTY in facts.components else charged[..., 0] * 0
    return {**columns, "penalty": penalty}
