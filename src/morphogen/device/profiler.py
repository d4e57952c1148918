"""Where the time of a round goes: phases that follow each other without a gap, on the clocks of host and device.

A phase lasts from its mark to the next one.  Marks change no number of a run and never wait: on a CUDA device each is
an event on the stream, and the events are read when a copy that was started behind them has arrived anyway.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch

PHASES = {
    "reset": "fresh envs, measured once",
    "head": "observe .. tick",
    "plan_wait": "the sizes of the epoch on their way to the host",
    "data": "drawing and gathering minibatches",
    "train": "births and optimiser steps of hosts and seeds",
    "validate": "accuracies, ablations included",
    "tail": "attribute .. reward, and the row of the rollout",
    "record_read": "the record of an epoch: made, sent, read, and told as events",
    "update": "advantages and optimiser steps of the policy",
    "checkpoint": "the state to the disk",
}
RING = 3  # epochs whose events exist at a time: being marked, on its way, being read
NANOS, MILLIS = 1e9, 1e3  # in a second


class Spent(NamedTuple):
    """What a phase took.  Time in which graphs were made is in none of it."""

    wall_s: float
    host_cpu_s: float  # of the thread that runs the scheduler
    device_s: float | None  # None on a CPU
    count: int  # how often it was entered


class NoTimer:
    """The timer that is off."""

    def mark(self, phase: str) -> None:
        """From here on the time belongs to this phase."""

    def seal(self, phase: str) -> None:
        """Mark; all that was marked before has happened once the copy that is started next has arrived."""

    def take(self) -> None:
        """Such a copy has arrived: read the device's clock up to the oldest seal."""

    def close(self) -> dict[str, Spent]:
        """What each phase took since the last close; the time up to the next mark belongs to none.

        What the device did after the last seal counts for the next close.
        """
        return {}


NO_TIMER = NoTimer()


class _Note(NamedTuple):
    phase: str | None
    event: Any  # torch.cuda.Event, recorded when the phase began
    apart: float


class _Tape:
    """Events on the stream of a device, in segments that end where they were sealed."""

    def __init__(self, event: Callable[[], Any], device: torch.device) -> None:
        self._event, self._device = event, device
        self._free: list[Any] = []
        self._open: list[_Note] = []
        self._sealed: deque[list[_Note]] = deque(maxlen=RING)

    def note(self, phase: str | None, apart: float) -> None:
        """Record an event; those that were read serve again."""
        event = self._free.pop() if self._free else self._event()
        event.record(torch.cuda.current_stream(self._device))
        self._open.append(_Note(phase, event, apart))

    def seal(self) -> None:
        """End the segment; its last event is the first of the next one."""
        self._sealed.append(self._open)
        self._open = self._open[-1:]

    def take(self) -> Iterator[tuple[str, float]]:
        """Phases and seconds of the oldest segment."""
        segment = self._sealed.popleft()
        for start, end in pairwise(segment):
            if start.phase is not None:
                elapsed = start.event.elapsed_time(end.event) / MILLIS
                yield start.phase, max(0.0, elapsed - (end.apart - start.apart))
        self._free += [note.event for note in segment[:-1]]


class Timer(NoTimer):
    """The timer of one scheduler."""

    def __init__(
        self,
        device: torch.device,
        *,
        apart: Callable[[], float] = lambda: 0.0,
        wall: Callable[[], int] = time.perf_counter_ns,
        cpu: Callable[[], int] = time.thread_time_ns,
        event: Callable[..., Any] = torch.cuda.Event,
    ) -> None:
        """`apart`: seconds so far that count for no phase."""
        self._wall, self._cpu, self._apart = wall, cpu, apart
        cuda = device.type == "cuda"
        self._tape = _Tape(partial(event, enable_timing=True), device) if cuda else None
        self._phase: str | None = None
        self._since = self._now()
        self._spent = self._nothing()

    def mark(self, phase: str) -> None:
        """From here on the time belongs to this phase."""
        entered = phase != self._phase
        self._turn(phase)
        self._add(phase, count=int(entered))

    def seal(self, phase: str) -> None:
        """Mark; all that was marked before has happened once the copy that is started next has arrived."""
        self.mark(phase)
        if self._tape is not None:
            self._tape.seal()

    def take(self) -> None:
        """Such a copy has arrived: read the device's clock up to the oldest seal."""
        for phase, seconds in self._tape.take() if self._tape is not None else ():
            self._add(phase, device_s=seconds)

    def close(self) -> dict[str, Spent]:
        """What each phase took since the last close; the time up to the next mark belongs to none."""
        self._turn(None)
        found, self._spent = self._spent, self._nothing()
        return {phase: spent for phase, spent in found.items() if spent.count}

    def _now(self) -> tuple[float, float, float]:
        return self._wall() / NANOS, self._cpu() / NANOS, self._apart()

    def _turn(self, phase: str | None) -> None:
        now = self._now()
        wall, cpu, apart = (after - before for after, before in zip(now, self._since, strict=True))
        if self._phase is not None:
            self._add(self._phase, wall_s=max(0.0, wall - apart), host_cpu_s=max(0.0, cpu - apart))
        if self._tape is not None:
            self._tape.note(phase, now[-1])
        self._phase, self._since = phase, now

    def _add(self, phase: str, **more: float) -> None:
        before = self._spent[phase]
        self._spent[phase] = before._replace(**{name: getattr(before, name) + value for name, value in more.items()})

    def _nothing(self) -> dict[str, Spent]:
        return dict.fromkeys(PHASES, Spent(0.0, 0.0, None if self._tape is None else 0.0, 0))
