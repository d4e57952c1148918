"""Record of a round: arrays [T, E, ...] of what happened in its epochs, and what the levels keep of them.  No tensors.

`engine.reporter.build_record` lists the columns; the events of envs, slots and epochs are derived from them alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.config.telemetry_spec import LEVEL_DEBUG, LEVELS
from morphogen.storage.codec import Array
from morphogen.vocab.action import RELEVANT
from morphogen.vocab.blueprint import CNN_KINDS, code_labels
from morphogen.vocab.objective import DELIVERED
from morphogen.vocab.stage import OCCUPIED, Fault, Panic, Stage

Record = Mapping[str, Array]  # leaves [E, ...] of one epoch
Columns = Mapping[str, Array]  # the same, [T, E, ...], of the epochs of a round

HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]
STAGE_POINTS = ("stage_before", "stage_acted", "stage_ticked", "stage")  # the four points of an epoch
LEVEL_RANK = {name: depth for depth, name in enumerate(LEVELS)}
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
    objective: str = DELIVERED  # of the task
    host: dict[str, Any] = field(default_factory=dict)  # numbers of the host, for the manifest of a topology


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
    def envs(self) -> int:
        """Number of envs in the record."""
        return next(iter(self.columns.values())).shape[1]

    def depths(self) -> Array:
        """Depth of the level of every epoch, int [T]."""
        return np.where(self.detailed, DEBUG, LEVEL_RANK[self.level])

    def take(self, envs: range) -> "RoundRecord":
        """The record of some of its envs, which are counted as in the run."""
        rows = slice(envs.start - self.facts.first, envs.stop - self.facts.first)
        columns = {name: column[:, rows] for name, column in self.columns.items()}
        ends = {name: end[rows] for name, end in self.ends.items()}
        return replace(self, facts=replace(self.facts, first=envs.start), columns=columns, ends=ends)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (*self.columns.values(), *self.ends.values()))


def join_records(parts: Sequence[RoundRecord]) -> RoundRecord:
    """The record of the envs of all parts, which follow each other, up to the epochs that all of them have.

    An epoch is detailed where it is in all parts.  Raises: ValueError unless they are parts of one round.
    """
    first, epochs = parts[0], min(part.epochs for part in parts)
    number = first.facts.first
    for part in parts:
        facts = replace(first.facts, first=number, device=part.facts.device)
        if (part.facts, part.round, part.level) != (facts, first.round, first.level):
            raise ValueError("it is of another round or run than the others")
        number += part.envs
    if len(parts) == 1:
        return first
    names = [name for name in first.columns if all(name in part.columns for part in parts)]
    columns = {name: np.concatenate([part.columns[name][:epochs] for part in parts], axis=1) for name in names}
    over = all(part.ends for part in parts)
    ends = {name: np.concatenate([part.ends[name] for part in parts]) for name in first.ends if over}
    detailed = np.logical_and.reduce([part.detailed[:epochs] for part in parts])
    return replace(first, detailed=detailed, columns=columns, ends=ends)


# Lowest level that keeps a column in every epoch; all others are of debug.
_KEPT = {
    MINIMAL: (
        *("stage_before", "stage_acted", "stage_ticked", "stage", "blueprint", "params", "alpha"),
        *("age", "epochs_in_stage", "algorithm", "tempo", "blend_target", "acc_before"),
        *("val_loss", "val_acc", "committed_acc", "contribution", "contribution_valid"),
        *("rolled_back", "panic", "panic_streak", "snapshot_epoch", "seeds_pruned"),
        *("detectors", "detector_ratio", "stabilized", "stable_epochs", "regime"),
    ),
    NORMAL: (
        *(
            "view_code",
            "classes",
            "reward",
            "skipped",
            "forwards",
            "success",
            "op_effective",
            "host_params",
            "gate",
            "gate_passed",
        ),
        *("train_loss", "train_acc", "train_valid", "host_gradient_norm", "gate_failed", "anomaly", "fault"),
    ),
}
COLUMN_RANK = {name: depth for depth, names in _KEPT.items() for name in names}
ABLATIONS = ("acc_table", "exact", "host_acc", "measured", "interaction_sum", "boost_received", "interaction_valid")
# Column -> its flag: not measured where that is False.
VALID = {
    **dict.fromkeys(("train_loss", "train_acc", "host_gradient_norm", "host_layer_norm"), "train_valid"),
    **dict.fromkeys(("contribution", "shapley"), "contribution_valid"),
    **dict.fromkeys(("gradient_norm", "gradient_health", "vanishing", "exploding"), "gradient_valid"),
    **dict.fromkeys(("interaction_sum", "boost_received"), "interaction_valid"),
    **{"gradient_ratio": "gradient_ratio_valid", "velocity": "velocity_valid"},
    **{"acc_table": "exact", "host_acc": "measured"},
}


def kept_columns(record: RoundRecord) -> dict[str, Array]:
    """The columns that the level of each epoch keeps, 0 where it does not keep or no event reads them."""
    columns, depths, detailed = record.columns, record.depths(), record.detailed
    last = (np.arange(record.epochs) == record.facts.epochs - 1) & (depths >= NORMAL)
    fossilized, fresh = stage_entries(columns, Stage.FOSSILIZED), columns["contribution_valid"]
    wrong = columns["rolled_back"] | (columns["anomaly"] != int(Panic.NONE)) | (columns["fault"] != int(Fault.NONE))
    later = np.logical_or.accumulate(detailed[::-1])[::-1]  # whose totals need the components before
    read: dict[str, Array] = {  # at all levels, if only in some envs
        "shapley": _last_measured(fossilized, fresh) | expand_flag(detailed | last, fresh),
        "loss_limit": wrong | expand_flag(detailed, wrong),
        "components": columns["rolled_back"] | expand_flag(later, wrong),
    }
    masks: dict[str, Array] = read | {name: depths >= depth for name, depth in COLUMN_RANK.items()}
    masks |= dict.fromkeys(ABLATIONS, detailed | last)
    kept = {}
    for name, column in columns.items():
        mask = masks.get(name, detailed)
        if name not in read and not mask.any():
            continue
        if name in VALID:
            mask = expand_flag(mask, columns[VALID[name]]) & columns[VALID[name]]
        kept[name] = np.where(expand_flag(mask, column), column, np.zeros((), dtype=column.dtype))
    if detailed.any():
        kept["nonfinite"] = np.where(detailed[:, None], _count_nonfinite(columns), 0)
    return kept


def _count_nonfinite(columns: Columns) -> Array:
    """Numbers of an env and epoch that are not finite: int32 [T, E]."""
    floats = [column for column in columns.values() if column.dtype.kind == "f"]
    counts = [(~np.isfinite(column)).reshape(*column.shape[:2], -1).sum(-1, dtype=np.int32) for column in floats]
    return np.sum(counts, axis=0, dtype=np.int32)


def expand_flag(flag: Array, like: Array) -> Array:
    """Append axes of size 1."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))


def _last_measured(kept: Array, fresh: Array) -> Array:
    """Return where a seed was measured for the last time before it was fossilized: bool [T, E, S]."""
    needed, sought = np.zeros_like(fresh), np.zeros_like(fresh[0])
    for epoch in range(len(fresh) - 1, 0, -1):
        sought |= kept[epoch]
        needed[epoch - 1] = sought & fresh[epoch - 1]
        sought &= ~fresh[epoch - 1]
    return needed


def stage_entries(columns: Columns, stage: Stage) -> Array:
    """Return whether a slot entered a stage in the epoch: bool [..., S]."""
    code = int(stage)  # which numpy compares faster than a member of an enum
    came = [(columns[b] != code) & (columns[a] == code) for b, a in pairwise(STAGE_POINTS)]
    return came[0] | came[1] | came[2]


def in_stages(stage: Array, stages: tuple[Stage, ...]) -> Array:
    """Return whether the stage is one of `stages`, a range of codes: bool."""
    return (stage >= int(stages[0])) & (stage <= int(stages[-1]))


def slot_history(columns: Columns) -> dict[str, Array]:
    """State of every slot as it stands after each epoch was closed, arrays [T, E, S].

    alpha, age, epochs_in_stage, params: 0 without a seed; contribution, shapley, contribution_valid: last measured, of
    a seed that is there; germination_accuracy: percent, before the seed was there.
    """
    stage, occupied = columns["stage"], in_stages(columns["stage"], OCCUPIED)
    filled, germinated = stage != Stage.DORMANT, stage_entries(columns, Stage.GERMINATED)
    fresh = columns["contribution_valid"] & occupied
    stayed = np.where(stage == columns["stage_ticked"], columns["epochs_in_stage"], 0)
    measured = {name: np.where(fresh, columns[name], 0) for name in ("contribution", "shapley")}
    measured["contribution_valid"] = fresh.copy()
    born = np.where(germinated, columns["acc_before"][..., None], 0)
    for t in range(1, len(stage)):
        born[t] = np.where(germinated[t], born[t], born[t - 1])
        for array in measured.values():
            array[t] = np.where(occupied[t] & ~fresh[t], array[t - 1], array[t])
    return {
        "alpha": columns["alpha"],
        "age": np.where(occupied, columns["age"] + 1, np.where(filled, columns["age"], 0)),
        "epochs_in_stage": np.where(filled, stayed + 1, 0),
        "params": np.where(occupied, columns["params"], 0),
        "germination_accuracy": born,
        **measured,
    }


def history_before(history: Columns) -> dict[str, Array]:
    """State of every slot before each epoch, 0 before the first, with the germinations of the epoch noted."""
    before = {name: np.concatenate((np.zeros_like(array[:1]), array[:-1])) for name, array in history.items()}
    return before | {"germination_accuracy": history["germination_accuracy"]}
