"""Record of a round: arrays [T, E, ...] of its epochs.  No tensors.

`train.reporter.build_record` lists the columns; the events of envs, slots and epochs are derived
from them alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from morphogen.log.codec import Array
from morphogen.vocab.action import RELEVANT
from morphogen.vocab.stage import OCCUPIED, Stage
from morphogen.vocab.text import name_map

Record = Mapping[str, Array]  # leaves [E, ...] of one epoch
Columns = Mapping[str, Array]  # the same, [T, E, ...], of the epochs of a round

HEAD_USED = np.asarray(RELEVANT)  # bool [OPS, heads]
# the four points of an epoch
STAGE_POINTS = ("stage_before", "stage_acted", "stage_ticked", "stage")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Constants of a run that events need."""

    task: str
    slots: tuple[str, ...]
    components: tuple[str, ...]  # of the reward, in recorded order
    epochs: int  # per episode
    success_accuracy: float  # percent
    gamma: float
    envs: int  # of the complete run
    samples: int  # that a host is trained on, per epoch
    blueprints: tuple[str, ...]  # name of every code
    objective: str  # of the task
    host: dict[str, Any]  # numbers, for the manifest of a topology


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """Epochs of a round, and the ends of its episodes."""

    facts: RunFacts
    round: int
    columns: Columns
    ends: Record  # [E, ...] of the episodes

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(next(iter(self.columns.values())))

    @property
    def envs(self) -> int:
        """Number of envs in the record."""
        return next(iter(self.columns.values())).shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (*self.columns.values(), *self.ends.values()))


# Column -> its flag: not measured where that is False.
VALID = name_map(
    "train_loss=train_valid, train_acc=train_valid, host_gradient_norm=train_valid, "
    "contribution=contribution_valid, shapley=contribution_valid, gradient_norm=gradient_valid, "
    "gradient_health=gradient_valid, vanishing=gradient_valid, exploding=gradient_valid, "
    "interaction_sum=interaction_valid, boost_received=interaction_valid, "
    "gradient_ratio=gradient_ratio_valid, velocity=velocity_valid, acc_table=exact, "
    "host_acc=measured"
)


def expand_flag(flag: Array, like: Array) -> Array:
    """Append axes of size 1."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))


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

    alpha, age, epochs_in_stage, params: 0 without a seed; contribution, shapley,
    contribution_valid: last measured, of a seed that is there; germination_accuracy: percent,
    before the seed was there.
    """
    stage = columns["stage"]
    occupied = in_stages(stage, OCCUPIED)
    filled = stage != Stage.DORMANT
    germinated = stage_entries(columns, Stage.GERMINATED)
    fresh = columns["contribution_valid"] & occupied
    stayed = np.where(stage == columns["stage_ticked"], columns["epochs_in_stage"], 0)
    born = np.where(germinated, columns["acc_before"][..., None], 0)
    known = fresh | ~occupied
    return {
        "alpha": columns["alpha"],
        "age": np.where(filled, columns["age"] + occupied, 0),
        "epochs_in_stage": np.where(filled, stayed + 1, 0),
        "params": np.where(occupied, columns["params"], 0),
        "germination_accuracy": _carry_forward(born, germinated),
        "contribution": _carry_forward(np.where(fresh, columns["contribution"], 0), known),
        "shapley": _carry_forward(np.where(fresh, columns["shapley"], 0), known),
        "contribution_valid": _carry_forward(fresh, known),
    }


def _carry_forward(values: Array, known: Array) -> Array:
    """Replace the values of epochs in which they are not known by the last ones that are."""
    for t in range(1, len(values)):
        values[t] = np.where(known[t], values[t], values[t - 1])
    return values
