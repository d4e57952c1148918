"""Profiler of a round: phases that follow each other without a gap, on the clocks of host and device.

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
OPEN_SEGMENTS = 3  # epochs whose events exist at a time: being marked, on its way, being read
NANOS, MILLIS = 1e9, 1e3  # in a second


class PhaseTime(NamedTuple):
    """Time of a phase, without the time of compiling graphs."""

    wall_s: float
    host_cpu_s: float  # of the thread that runs the scheduler
    device_s: float | None  # None on a CPU
    count: int  # how often it was entered


class NullTimer:
    """The timer that is off."""

    def mark(self, phase: str) -> None:
        """From here on the time belongs to this phase."""

    def end_segment(self, phase: str) -> None:
        """Mark; all that was marked before has happened once the copy that is started next has arrived."""

    def collect(self) -> None:
        """Such a copy has arrived: read the device's clock up to the oldest seal."""

    def close(self) -> dict[str, PhaseTime]:
        """Return the time of each phase since the last close; the time up to the next mark belongs to no phase.

        What the device did after the last seal counts for the next close.
        """
        return {}


NULL_TIMER = NullTimer()


class _PhaseMark(NamedTuple):
    phase: str | None
    event: Any  # torch.cuda.Event, recorded when the phase began
    excluded_s: float


class _EventLog:
    """Events on the stream of a device, in segments that end where they were sealed."""

    def __init__(self, event: Callable[[], Any], device: torch.device) -> None:
        self._event, self._device = event, device
        self._free: list[Any] = []
        self._open: list[_PhaseMark] = []
        self._segments: deque[list[_PhaseMark]] = deque(maxlen=OPEN_SEGMENTS)

    def record(self, phase: str | None, excluded_s: float) -> None:
        """Record an event; those that were read serve again."""
        event = self._free.pop() if self._free else self._event()
        event.record(torch.cuda.current_stream(self._device))
        self._open.append(_PhaseMark(phase, event, excluded_s))

    def end_segment(self) -> None:
        """End the segment; its last event is the first of the next one."""
        self._segments.append(self._open)
        self._open = self._open[-1:]

    def collect(self) -> Iterator[tuple[str, float]]:
        """Phases and seconds of the oldest segment."""
        segment = self._segments.popleft()
        for start, end in pairwise(segment):
            if start.phase is not None:
                elapsed = start.event.elapsed_time(end.event) / MILLIS
                yield start.phase, max(0.0, elapsed - (end.excluded_s - start.excluded_s))
        self._free += [note.event for note in segment[:-1]]


class Timer(NullTimer):
    """The timer of one scheduler."""

    def __init__(
        self,
        device: torch.device,
        *,
        excluded: Callable[[], float] = lambda: 0.0,
        wall: Callable[[], int] = time.perf_counter_ns,
        cpu: Callable[[], int] = time.thread_time_ns,
        event: Callable[..., Any] = torch.cuda.Event,
    ) -> None:
        """`apart`: seconds so far that count for no phase."""
        self._wall, self._cpu, self._excluded = wall, cpu, excluded
        cuda = device.type == "cuda"
        self._log = _EventLog(partial(event, enable_timing=True), device) if cuda else None
        self._phase: str | None = None
        self._since = self._now()
        self._times = self._zero_times()

    def mark(self, phase: str) -> None:
        """From here on the time belongs to this phase."""
        entered = phase != self._phase
        self._switch(phase)
        self._add(phase, count=int(entered))

    def end_segment(self, phase: str) -> None:
        """Mark; all that was marked before has happened once the copy that is started next has arrived."""
        self.mark(phase)
        if self._log is not None:
            self._log.end_segment()

    def collect(self) -> None:
        """Such a copy has arrived: read the device's clock up to the oldest seal."""
        for phase, seconds in self._log.collect() if self._log is not None else ():
            self._add(phase, device_s=seconds)

    def close(self) -> dict[str, PhaseTime]:
        """Return the time of each phase since the last close; the time up to the next mark belongs to no phase."""
        self._switch(None)
        found, self._times = self._times, self._zero_times()
        return {phase: spent for phase, spent in found.items() if spent.count}

    def _now(self) -> tuple[float, float, float]:
        return self._wall() / NANOS, self._cpu() / NANOS, self._excluded()

    def _switch(self, phase: str | None) -> None:
        now = self._now()
        wall, cpu, apart = (after - before for after, before in zip(now, self._since, strict=True))
        if self._phase is not None:
            self._add(self._phase, wall_s=max(0.0, wall - apart), host_cpu_s=max(0.0, cpu - apart))
        if self._log is not None:
            self._log.record(phase, now[-1])
        self._phase, self._since = phase, now

    def _add(self, phase: str, **increments: float) -> None:
        before = self._times[phase]
        self._times[phase] = before._replace(
            **{name: getattr(before, name) + value for name, value in increments.items()}
        )

    def _zero_times(self) -> dict[str, PhaseTime]:
        return dict.fromkeys(PHASES, PhaseTime(0.0, 0.0, None if self._log is None else 0.0, 0))
