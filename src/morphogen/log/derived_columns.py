"""Columns of a record that follow from others, computed on the host once a round.  No tensors."""

import numpy as np

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.log.codec import Array
from morphogen.log.round_record import STAGE_POINTS, Columns
from morphogen.vocab.stage import Fault, Removal, Stage

_INSTANCE = tuple(f"instance_{name}" for name in INSTANCE_PARAMETERS)
# Columns that only the derived ones need.
_SOURCES = {"target", "action_gate", "action_gate_failed", "tick_gate", "tick_removal", *_INSTANCE}
_SOURCES |= {"overflowed", "seed_skipped", "observation_finite"}


def derive_columns(columns: Columns) -> dict[str, Array]:
    """Replace the sources of derived columns by these: gates, removals, faults, the instance.

    Shapes: columns [T, E, ...] of `train.reporter.build_record`, or [E, ...] -> the same, with
    `gate` int8, `gate_passed` bool, `gate_failed` int16 (bits of `Check`), `removal` int8, all
    [..., S]; `fault` int32 (`Fault`) [...]; `instance` float32 [..., P].
    """
    kept = {name: column for name, column in columns.items() if name not in _SOURCES}
    by_action = columns["target"] & (columns["action_gate"] != 0)[..., None]
    gate = np.where(by_action, columns["action_gate"][..., None], columns["tick_gate"])
    failed = np.where(by_action, columns["action_gate_failed"][..., None], 0)
    return kept | {
        "gate": gate.astype(np.int8),
        "gate_passed": (gate != 0) & (failed == 0),
        "gate_failed": failed.astype(np.int16),
        "removal": _removal_causes(columns),
        "fault": _fault_bits(columns),
        "instance": np.stack([columns[name].astype(np.float32) for name in _INSTANCE], axis=-1),
    }


def _removal_causes(columns: Columns) -> Array:
    """Cause of the removal of every slot, int8 [..., S]."""
    before, acted, ticked, after = (columns[point] == Stage.PRUNED for point in STAGE_POINTS)
    cause = np.where(acted & ~before, int(Removal.ACTION), columns["tick_removal"])
    return np.where(after & ~ticked, int(Removal.GOVERNOR), cause).astype(np.int8)


def _fault_bits(columns: Columns) -> Array:
    """Bit set of the faults of an env in an epoch, int32 [...]."""
    decided = np.isfinite(columns["value"]) & np.isfinite(columns["log_prob"]).all(axis=-1)
    faults = {
        Fault.SKIPPED_STEP: columns["skipped"] > columns["overflowed"],
        Fault.SEED_SKIPPED: columns["seed_skipped"],
        Fault.VALIDATION: ~np.isfinite(columns["val_loss"]),
        Fault.OBSERVATION: ~columns["observation_finite"],
        Fault.ROLLED_BACK: columns["rolled_back"],
        Fault.POLICY: ~decided,
    }
    return np.sum([hit * np.int32(fault) for fault, hit in faults.items()], axis=0, dtype=np.int32)
