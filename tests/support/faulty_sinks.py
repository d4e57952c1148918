"""Sinks that misbehave, and events to feed them with."""

import errno
import threading

from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope
from morphogen.log.kinds.round import BatchSummary
from morphogen.log.kinds.run import CheckpointSaved, RunCompleted

SAVED = CheckpointSaved(path="x", kind="final", size_bytes=1, save_s=0.0)
DONE = RunCompleted(
    status="completed", rounds_done=1, best_round=0, best_accuracy=1.0, error=None, run_s=1.0
)
_MEANS = (
    "accuracy",
    "committed",
    "loss",
    "reward",
    "return",
    "network_value",
    "params_ratio",
    "stability",
)
_REALS = [
    *(f"{name}_mean" for name in _MEANS),
    "accuracy_std",
    "accuracy_min",
    "accuracy_max",
    "reward_std",
]
_COUNTS = (
    "episodes_completed",
    "germinated",
    "fossilized",
    "contributing",
    "pruned",
    "live",
    "rollbacks",
)
_ROWS = ("env_accuracy", "env_committed", "env_reward")


def summary(round=0):
    """The end of a round."""
    numbers = {
        **dict.fromkeys(_REALS, 1.0),
        **dict.fromkeys(_COUNTS, 0),
        **dict.fromkeys(_ROWS, (1.0,)),
    }
    data = BatchSummary(
        round=round, rolling_accuracy=1.0, success_share=0.0, updated=True, **numbers
    )
    return Envelope(data, round=round)


def all_events(sink):
    """Events that a MemorySink kept, and before the events about a round those that its record
    holds.
    """
    records, found = list(sink.records), []
    for event in sink.events:
        if records and event.round == records[0].round:
            found += derive_events(records.pop(0))
        found.append(event)
    return found


class Keep:
    """Keeps what it takes, in batches."""

    def __init__(self):
        self.batches, self.flushed, self.closed = [], 0, 0

    @property
    def events(self):
        return [event for batch in self.batches for event in batch]

    @property
    def names(self):
        return [event.name for event in self.events]

    def write(self, events):
        self.batches.append(list(events))

    def flush(self):
        self.flushed += 1

    def close(self):
        self.closed += 1


class Blocked(Keep):
    """Takes nothing until it is let go; `began` tells that it was given something."""

    def __init__(self):
        super().__init__()
        self.began, self.free = threading.Event(), threading.Event()

    def write(self, events):
        self.began.set()
        assert self.free.wait(60)
        super().write(events)


class Broken(Keep):
    """Raises at the batch of that number."""

    def __init__(self, at=0):
        super().__init__()
        self.at, self.calls = at, 0

    def write(self, events):
        self.calls += 1
        if self.calls > self.at:
            raise RuntimeError("no route to host")
        super().write(events)


class FullDisk:
    """A file on a disk that takes at most `room` bytes; None = any number."""

    def __init__(self, file, room=0):
        self.file, self.room = file, room

    def write(self, data):
        if self.room is None:
            return self.file.write(data)
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)
