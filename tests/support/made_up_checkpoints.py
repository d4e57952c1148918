"""Checkpoints of no run: trees of a test in the place of envs and learner."""

from typing import Any

from morphogen.state.tensor_trees import Tree
from morphogen.train.checkpoint import Checkpoint
from morphogen.train.reporter import TelemetryState


def made_up(
    round: int = 1, *, epoch: int = 0, learner: Tree | None = None, carry: Any = None, **facts: Any
) -> Checkpoint:
    """A checkpoint with two trees and entries of its manifest; the rest is empty."""
    return Checkpoint(
        {"round": round, "epoch": epoch, **facts},
        learner or {},
        carry or {},
        rollout={},
        columns={},
        telemetry=TelemetryState((), {}),
        log=None,
    )
