"""A configuration measured: a few rounds, of which the first warms up, and what they took."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch

from morphogen.errors import DeviceError
from morphogen.run import extensions, measures
from morphogen.run.device import name
from morphogen.run.measures import Measure, over
from morphogen.run.memory import keep_freed, status
from morphogen.run.scheduler import Scheduler
from morphogen.run.setup import build_setup
from morphogen.run.telemetry.events import BatchSummary
from morphogen.vocab.spec import RunSpec

CONTROL = ("head", "tail", "record_read")
MIB = 2**20


class Found(NamedTuple):
    """What was measured of one configuration, and where."""

    machine: dict[str, Any]
    checksum: float  # of what was computed
    rows: tuple[Measure, ...]


def probe(spec: RunSpec) -> Found:
    """Run all rounds of a resolved spec in this process.  What the device cannot hold is a DeviceError."""
    extensions.announce()
    keep_freed()
    scheduler = Scheduler(build_setup(spec))
    try:
        with torch.no_grad():
            warm, *rounds = scheduler.run()
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{scheduler.setup.device} has too little memory: {str(error).partition('.')[0]}") from None
    facts = measures.machine(device=name(scheduler.setup.device), threads=torch.get_num_threads())
    return Found(facts, fmean(rounds[-1].env_reward), rows(warm, rounds))


def rows(warm: BatchSummary, rounds: Sequence[BatchSummary]) -> tuple[Measure, ...]:
    """The rows of a table, from the round that warms up and those that count."""
    every = (warm, *rounds)
    last = rounds[-1].memory
    peak = last[0]["peak_bytes"] if last else status("VmHWM")
    return (
        over("env_epochs_per_s", [one.env_epochs_per_s for one in rounds], "env-epochs/s"),
        over("samples_per_s", [one.samples_per_s for one in rounds], "samples/s"),
        over("warm_up_env_epochs_per_s", [warm.env_epochs_per_s], "env-epochs/s"),
        over("update_s", [one.update_s for one in rounds], "s"),
        over("host_wait_time_share", [one.host_wait_time_share or 0.0 for one in rounds], "share"),
        *_phases(rounds),
        over("compile_s", [sum(one.compile_s for one in every)], "s"),
        over("graphs", [sum(one.graphs for one in every)], "count"),
        over("graph_fallbacks", [sum(one.graph_fallbacks for one in every)], "count"),
        over("rollbacks", [sum(one.rollbacks for one in rounds)], "count"),
        *(() if peak is None else (over("peak_memory", [peak / MIB], "MiB"),)),
    )


def _phases(rounds: Sequence[BatchSummary]) -> list[Measure]:
    """What share of a round each phase is, on the clock of the device where there is one; none where none was kept."""
    shares = [_shares(one.phases) for one in rounds]
    if not all(shares):
        return []
    control = [sum(one[phase] for phase in CONTROL) for one in shares]
    found = [over(f"share_{phase}", [one[phase] for one in shares], "share") for phase in shares[0]]
    return [over("control_share", control, "share"), *found]


def _shares(phases: dict[str, dict[str, Any]]) -> dict[str, float]:
    seconds = {phase: one["wall_s"] if one["device_s"] is None else one["device_s"] for phase, one in phases.items()}
    return {phase: value / sum(seconds.values()) for phase, value in seconds.items()}
