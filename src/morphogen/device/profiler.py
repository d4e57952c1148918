"""Profiler of a round: its phases, and the timer that a package may offer.

A phase lasts from its mark to the next mark.  Marks change no number of a run and never wait.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from morphogen.config.registry import extra_parts

PHASES = {
    "reset": "fresh envs, measured once",
    "head": "observe .. tick",
    "plan_wait": "transfer of the sizes of the epoch to the host",
    "data": "drawing minibatches, and fetching streamed images",
    "train": "new seeds, gathering minibatches, and optimiser steps of hosts and seeds",
    "validate": "accuracies, ablations included",
    "tail": "attribute .. reward, and the row of the rollout",
    "record_read": "the record of an epoch: built, sent, read, and reported as events",
    "exchange": "waiting for other processes, rows and columns of their envs",
    "update": "advantages and optimiser steps of the policy",
    "checkpoint": "saving the state",
}


@dataclass(slots=True)
class PhaseTime:
    """Time of a phase, without the time of compilation."""

    wall_s: float = 0.0
    host_cpu_s: float = 0.0  # of the thread that runs the scheduler
    device_s: float | None = None  # None on a CPU
    count: int = 0  # entries


class NullTimer:
    """Timer that measures nothing."""

    def mark(self, phase: str) -> None:
        """Begin a phase."""

    def end_segment(self, phase: str) -> None:
        """Begin a phase and end the segment of events that precede the next copy."""

    def collect(self) -> None:
        """Read the events of the oldest segment, whose copy has arrived."""

    def close(self) -> dict[str, PhaseTime]:
        """Return the time of each phase since the last close; the time up to the next mark belongs
        to no phase.

        Work of the device after the last segment counts for the next close.
        """
        return {}


NULL_TIMER = NullTimer()


def open_timer(device: torch.device, excluded: Callable[[], float]) -> NullTimer:
    """Return the timer that an extra offers at the entry points `morphogen.timers`; without one
    nothing is measured.

    excluded: seconds so far that count for no phase.
    """
    for timer in extra_parts("morphogen.timers").values():
        return timer(device, excluded=excluded)
    return NULL_TIMER
