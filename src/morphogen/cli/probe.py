"""A configuration measured: a few rounds, of which the first warms up, and what they took."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch

from morphogen.cli import measures
from morphogen.cli.measures import Measure, over
from morphogen.config.spec import RunSpec
from morphogen.device.cuda_memory import device_name
from morphogen.device.malloc import keep_freed_memory, process_memory
from morphogen.engine import extensions
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.errors import DeviceError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.writer import MemorySink

CONTROL = ("head", "tail", "record_read")
MIB = 2**20
Told = dict[str, Any]  # name of an event -> its data
Phases = dict[str, dict[str, Any]]


class Found(NamedTuple):
    """What was measured of one configuration, and where."""

    machine: dict[str, Any]
    checksum: float  # of what was computed
    rows: tuple[Measure, ...]


def probe(spec: RunSpec) -> Found:
    """Run all rounds of a resolved spec in this process.  What the device cannot hold is a DeviceError."""
    extensions.register_names()
    keep_freed_memory()
    kept = MemorySink()
    scheduler = Scheduler(build_setup(spec), Parts(sinks=(kept,)))
    try:
        with torch.no_grad():
            rounds = scheduler.run()
        scheduler.reporter.close()
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{scheduler.setup.device} has too little memory: {str(error).partition('.')[0]}") from None
    facts = measures.machine(device=device_name(scheduler.setup.device), threads=torch.get_num_threads())
    return Found(facts, fmean(rounds[-1].env_reward), rows(by_round(kept.events)))


def by_round(told: Iterable[Envelope]) -> list[Told]:
    """The events about each round, by name."""
    found: dict[int, Told] = {}
    for event in told:
        if event.round is not None and event.epoch is None:
            found.setdefault(event.round, {})[event.name] = event.data
    return [found[round] for round in sorted(found)]


def rows(every: Sequence[Told]) -> tuple[Measure, ...]:
    """The rows of a table, from the events of all rounds, of which the first warms up."""
    rounds = [one["RoundCompleted"] for one in every]
    pace = [one["Throughput"] for one in every]
    last = every[-1].get("MemoryUsed")
    peak = process_memory("VmHWM") if last is None else last.peak_bytes
    return (
        over("env_epochs_per_s", [one.env_epochs_per_s for one in pace[1:]], "env-epochs/s"),
        over("samples_per_s", [one.samples_per_s for one in pace[1:]], "samples/s"),
        over("warm_up_env_epochs_per_s", [pace[0].env_epochs_per_s], "env-epochs/s"),
        over("update_s", [one.update_s for one in pace[1:]], "s"),
        over("host_wait_time_share", [one.host_wait_time_share or 0.0 for one in pace[1:]], "share"),
        *_phases([one["PhaseProfile"].phases for one in every[1:] if "PhaseProfile" in one]),
        over("compile_s", [sum(one.compile_s for one in pace)], "s"),
        over("graphs", [sum(one.graphs for one in rounds)], "count"),
        over("graph_fallbacks", [sum(one.graph_fallbacks for one in rounds)], "count"),
        over("rollbacks", [sum(one.rollbacks for one in rounds[1:])], "count"),
        *(() if peak is None else (over("peak_memory", [peak / MIB], "MiB"),)),
    )


def _phases(profiles: Sequence[Phases]) -> list[Measure]:
    """What share of a round each phase is, on the clock of the device where there is one; none where none was kept."""
    shares = [_shares(phases) for phases in profiles]
    if not shares:
        return []
    control = [sum(one[phase] for phase in CONTROL) for one in shares]
    found = [over(f"share_{phase}", [one[phase] for one in shares], "share") for phase in shares[0]]
    return [over("control_share", control, "share"), *found]


def _shares(phases: Phases) -> dict[str, float]:
    seconds = {phase: one["wall_s"] if one["device_s"] is None else one["device_s"] for phase, one in phases.items()}
    return {phase: value / sum(seconds.values()) for phase, value in seconds.items()}
