"""Timer of the phases of a round, on the clocks of CPU and device.

On a CUDA device a mark is an event on the stream.  Events are read when a later copy has arrived
anyway, so that a mark never waits.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from morphogen.device.profiler import PHASES, NullTimer, PhaseTime

OPEN_SEGMENTS = 3  # epochs with unread events: one marked, one in transfer, one read
MILLIS = 1e3  # per second


class _PhaseMark(NamedTuple):
    phase: str | None
    event: Any  # torch.cuda.Event at the start of the phase
    excluded_s: float


class _EventLog:
    """Events on the stream of a device, in segments."""

    def __init__(self, event: Callable[[], Any], device: torch.device) -> None:
        self._event = event
        self._device = device
        self._free: list[Any] = []
        self._open: list[_PhaseMark] = []
        self._segments: deque[list[_PhaseMark]] = deque(maxlen=OPEN_SEGMENTS)

    def record(self, phase: str | None, excluded_s: float) -> None:
        """Record an event, reusing events that were read."""
        event = self._free.pop() if self._free else self._event()
        event.record(torch.cuda.current_stream(self._device))
        self._open.append(_PhaseMark(phase, event, excluded_s))

    def end_segment(self) -> None:
        """End the segment; its last event is the first event of the next segment."""
        self._segments.append(self._open)
        self._open = self._open[-1:]

    def collect(self) -> Iterator[tuple[str, float]]:
        """Yield phases and seconds of the oldest segment."""
        segment = self._segments.popleft()
        for start, end in pairwise(segment):
            if start.phase is not None:
                elapsed = start.event.elapsed_time(end.event) / MILLIS
                yield start.phase, max(0.0, elapsed - (end.excluded_s - start.excluded_s))
        self._free += [note.event for note in segment[:-1]]


class Timer(NullTimer):
    """Timer of one scheduler."""

    def __init__(
        self,
        device: torch.device,
        *,
        excluded: Callable[[], float] = lambda: 0.0,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
        event: Callable[..., Any] = torch.cuda.Event,
    ) -> None:
        """Start the clocks.  `excluded`: seconds so far that count for no phase."""
        self._wall = wall
        self._cpu = cpu
        self._excluded = excluded
        cuda = device.type == "cuda"
        self._log = _EventLog(partial(event, enable_timing=True), device) if cuda else None
        self._phase: str | None = None
        self._since = self._now()
        self._times = self._zero_times()

    def mark(self, phase: str) -> None:
        """Begin a phase."""
        self._times[phase].count += phase != self._phase
        self._switch(phase)

    def end_segment(self, phase: str) -> None:
        """Begin a phase and end the segment of events that precede the next copy."""
        self.mark(phase)
        if self._log is not None:
            self._log.end_segment()

    def collect(self) -> None:
        """Read the events of the oldest segment, whose copy has arrived."""
        for phase, seconds in self._log.collect() if self._log is not None else ():
            spent = self._times[phase]
            spent.device_s = (spent.device_s or 0.0) + seconds

    def close(self) -> dict[str, PhaseTime]:
        """Return the time of each phase since the last close; the time up to the next mark belongs
        to no phase.
        """
        self._switch(None)
        times, self._times = self._times, self._zero_times()
        return {phase: spent for phase, spent in times.items() if spent.count}

    def _now(self) -> tuple[float, float, float]:
        return self._wall(), self._cpu(), self._excluded()

    def _switch(self, phase: str | None) -> None:
        now = wall, cpu, excluded = self._now()
        if self._phase is not None:
            spent = self._times[self._phase]
            (wall_before, cpu_before, excluded_before) = self._since
            spent.wall_s += max(0.0, wall - wall_before - (excluded - excluded_before))
            spent.host_cpu_s += max(0.0, cpu - cpu_before - (excluded - excluded_before))
        if self._log is not None:
            self._log.record(phase, excluded)
        self._phase = phase
        self._since = now

    def _zero_times(self) -> dict[str, PhaseTime]:
        return {phase: PhaseTime(device_s=None if self._log is None else 0.0) for phase in PHASES}
