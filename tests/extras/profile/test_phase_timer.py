"""Timers: every moment belongs to one phase, the device's clock is read behind a copy only, and no
number changes.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from support.small_runs import events_by_round, tiny, tiny_setup

from bench.harness.memory_sink import MemorySink
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec
from morphogen.device.profiler import NULL_TIMER
from morphogen.env.setup import build_setup
from morphogen.extras.profile.phase_timer import Timer
from morphogen.train.loop import Parts, Scheduler

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Clocks:
    """Clocks that stand where they are put, in seconds."""

    def __init__(self):
        self.wall = self.cpu = self.apart = 0.0

    def timer(self, device=CPU, **more):
        wall, cpu = (lambda: self.wall), (lambda: self.cpu)
        return Timer(device, excluded=lambda: self.apart, wall=wall, cpu=cpu, **more)

    def go(self, wall, cpu=0.0, apart=0.0):
        self.wall, self.cpu, self.apart = self.wall + wall, self.cpu + cpu, self.apart + apart


class Device:
    """A device that works through its queue on demand; what has not happened yet cannot be
    read.
    """

    def __init__(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)
        self.queue, self.now, self.made = [], 0.0, 0

    def event(self, *, enable_timing):
        assert enable_timing
        self.made += 1
        return Event()

    def work(self, seconds):
        self.queue.append(seconds)

    def run(self):
        for one in self.queue:
            if isinstance(one, Event):
                one.at = self.now
            else:
                self.now += one
        self.queue.clear()


class Event:
    at = None

    def record(self, stream):
        self.at = None
        stream.queue.append(self)

    def elapsed_time(self, end):
        assert self.at is not None, "this event has not happened yet"
        assert end.at is not None, "this event has not happened yet"
        return (end.at - self.at) * 1e3


def test_a_phase_lasts_to_the_next_mark_and_goes_on_when_marked_again():
    clocks = Clocks()
    timer = clocks.timer()
    clocks.go(9)
    for phase, seconds in (("head", 1), ("train", 2), ("train", 4), ("data", 8), ("train", 16)):
        timer.mark(phase)
        clocks.go(seconds, cpu=seconds / 2)
    found = timer.close()
    clocks.go(32)
    assert {phase: (one.wall_s, one.host_cpu_s, one.count) for phase, one in found.items()} == {
        "head": (1, 0.5, 1),
        "train": (22, 11, 2),
        "data": (8, 4, 1),
    }
    assert all(one.device_s is None for one in found.values())
    timer.mark("train")
    clocks.go(1)
    assert timer.close()["train"].wall_s == 1
    assert timer.close() == {}


def test_the_time_of_making_graphs_belongs_to_no_phase():
    clocks = Clocks()
    timer = clocks.timer()
    timer.mark("train")
    clocks.go(10, cpu=3, apart=8)
    found = timer.close()["train"]
    assert (found.wall_s, found.host_cpu_s) == (2, 0)


def epoch(timer, device, seconds):
    """An epoch as a scheduler marks it: the device lags behind, the host never waits."""
    timer.mark("head")
    device.work(seconds)
    timer.mark("train")
    device.work(10 * seconds)
    timer.end_segment("record_read")
    device.work(0.5)


def test_the_time_on_the_device_is_read_one_epoch_late_and_never_before_it_has_passed(monkeypatch):
    clocks, device = Clocks(), Device(monkeypatch)
    timer = clocks.timer(CUDA, event=device.event)
    for t in range(40):
        epoch(timer, device, 1.0)
        device.run()
        # of this one nothing has happened yet when the one before is read
        epoch(timer, device, 1.0)
        timer.collect()
        device.run()
        timer.collect()
        assert device.made <= 12, f"epoch {t} made new events"
    found = timer.close()
    assert (found["head"].device_s, found["train"].device_s) == (80, 800)
    assert found["record_read"].device_s == 39.5 * 1.0
    assert found["head"].count == 80


def rounds(**fields):
    """A scheduler after two rounds, what they were summed up to, and the events about each."""
    kept = MemorySink()
    scheduler = Scheduler(build_setup(tiny(rounds=2, **fields)), Parts(sinks=(kept,)))
    with torch.no_grad():
        history = scheduler.run()
    scheduler.reporter.close()
    return scheduler, history, events_by_round(kept.events)


@pytest.mark.slow
def test_timers_change_no_bit_of_a_run():
    on, off = (rounds(engine=EngineSpec(phase_profile=flag)) for flag in (True, False))
    assert isinstance(on[0].timer, Timer)
    assert off[0].timer is off[0].env.timer is NULL_TIMER
    assert (on[0].state == off[0].state).all()
    assert (on[0].params == off[0].params).all()
    assert on[1] == off[1]
    assert ["PhaseProfile" in one for one in (*on[2], *off[2])] == [True, True, False, False]
    assert [one["Throughput"].data_wait_time_share for one in off[2]] == [None, None]


@pytest.mark.slow
def test_every_phase_of_a_round_is_entered_as_often_as_it_happens():
    _, _, (_, last) = rounds(
        episode_length=5, data=DataSpec(batch=8, minibatches=3, val_samples=32)
    )
    assert {phase: one["count"] for phase, one in last["PhaseProfile"].phases.items()} == {
        **dict.fromkeys(("reset", "update"), 1),
        "exchange": 2,
        **dict.fromkeys(("head", "plan_wait", "validate", "tail"), 5),
        "record_read": 5 + 1,
        "data": 5 * (1 + 3),
        "train": 5 * (2 + 3),
    }


def test_phases_leave_no_moment_of_a_round_out():
    ticks, kept = itertools.count(), MemorySink()
    scheduler = Scheduler(tiny_setup(), Parts(sinks=(kept,)))
    scheduler.timer = Timer(CPU, wall=lambda: next(ticks))
    scheduler.env = replace(scheduler.env, timer=scheduler.timer)
    began = next(ticks)
    with torch.no_grad():
        scheduler.run_round()
    ended = next(ticks)
    scheduler.reporter.close()
    marked = ended - began - 2  # between the first and the last reading of the clock
    (reported,) = events_by_round(kept.events)
    assert sum(one["wall_s"] for one in reported["PhaseProfile"].phases.values()) == marked


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="events need a CUDA device; this machine has none"
)
def test_on_a_cuda_device_the_phases_of_a_round_have_device_times():
    torch.cuda.set_sync_debug_mode("default")
    _, _, (_, last) = rounds(engine=EngineSpec(devices=("cuda",)))
    phases = last["PhaseProfile"].phases
    assert all(phases[name]["device_s"] > 0 for name in ("head", "train", "validate"))
    assert last["MemoryUsed"].peak_bytes >= last["MemoryUsed"].allocated_bytes > 0
