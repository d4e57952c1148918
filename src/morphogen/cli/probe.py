"""A configuration measured: a few rounds, of which the first warms up, and what they took."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch

from morphogen.cli import measures
from morphogen.cli.measures import Measure, median_measure
from morphogen.config.spec import RunSpec
from morphogen.device.cuda_memory import device_name
from morphogen.device.malloc import keep_freed_memory, process_memory
from morphogen.engine import extensions
from morphogen.engine.scheduler import Parts, Scheduler
from morphogen.engine.setup import build_setup
from morphogen.errors import DeviceError
from morphogen.telemetry.events import Envelope
from morphogen.telemetry.writer import MemorySink

CONTROL_PHASES = ("head", "tail", "record_read")
MIB = 2**20
RoundEvents = dict[str, Any]  # name of an event -> its data
PhaseTable = dict[str, dict[str, Any]]


class ProbeResult(NamedTuple):
    """Measurements of one configuration, and the machine."""

    machine: dict[str, Any]
    checksum: float  # of what was computed
    rows: tuple[Measure, ...]


def probe(spec: RunSpec) -> ProbeResult:
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
    facts = measures.machine_facts(device=device_name(scheduler.setup.device), threads=torch.get_num_threads())
    return ProbeResult(facts, fmean(rounds[-1].env_reward), measure_rows(events_by_round(kept.events)))


def events_by_round(events: Iterable[Envelope]) -> list[RoundEvents]:
    """The events about each round, by name."""
    found: dict[int, RoundEvents] = {}
    for event in events:
        if event.round is not None and event.epoch is None:
            found.setdefault(event.round, {})[event.name] = event.data
    return [found[round] for round in sorted(found)]


def measure_rows(events: Sequence[RoundEvents]) -> tuple[Measure, ...]:
    """The rows of a table, from the events of all rounds, of which the first warms up."""
    rounds = [one["RoundCompleted"] for one in events]
    pace = [one["Throughput"] for one in events]
    last = events[-1].get("MemoryUsed")
    peak = process_memory("VmHWM") if last is None else last.peak_bytes
    return (
        median_measure("env_epochs_per_s", [one.env_epochs_per_s for one in pace[1:]], "env-epochs/s"),
        median_measure("samples_per_s", [one.samples_per_s for one in pace[1:]], "samples/s"),
        median_measure("warm_up_env_epochs_per_s", [pace[0].env_epochs_per_s], "env-epochs/s"),
        median_measure("update_s", [one.update_s for one in pace[1:]], "s"),
        median_measure("host_wait_time_share", [one.host_wait_time_share or 0.0 for one in pace[1:]], "share"),
        *_phase_measures([one["PhaseProfile"].phases for one in events[1:] if "PhaseProfile" in one]),
        median_measure("compile_s", [sum(one.compile_s for one in pace)], "s"),
        median_measure("graphs", [sum(one.graphs for one in rounds)], "count"),
        median_measure("graph_fallbacks", [sum(one.graph_fallbacks for one in rounds)], "count"),
        median_measure("rollbacks", [sum(one.rollbacks for one in rounds[1:])], "count"),
        *(() if peak is None else (median_measure("peak_memory", [peak / MIB], "MiB"),)),
    )


def _phase_measures(profiles: Sequence[PhaseTable]) -> list[Measure]:
    """Share of a round of each phase, on the clock of the device if it has one; empty without profiles."""
    shares = [_phase_shares(phases) for phases in profiles]
    if not shares:
        return []
    control = [sum(one[phase] for phase in CONTROL_PHASES) for one in shares]
    found = [median_measure(f"share_{phase}", [one[phase] for one in shares], "share") for phase in shares[0]]
    return [median_measure("control_share", control, "share"), *found]


def _phase_shares(phases: PhaseTable) -> dict[str, float]:
    seconds = {phase: one["wall_s"] if one["device_s"] is None else one["device_s"] for phase, one in phases.items()}
    return {phase: value / sum(seconds.values()) for phase, value in seconds.items()}
