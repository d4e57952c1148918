"""Rounds of a configuration: `python -m bench.speed.rounds [--envs 8] [--rounds 3] [--json FILE]`.

Takes the settings of `morphogen train`, runs all rounds in this process and prints rates, the share
of every phase in a round, the time of compiling and the peak of memory.  The first round is a
warm-up and does not count.  No run directory is written.
"""

import argparse
from collections import defaultdict
from typing import Any

import torch

from bench.harness.machine import machine_facts
from bench.harness.memory_sink import MemorySink
from bench.harness.timing import (
    Measure,
    format_measures,
    machine_line,
    median_measure,
    write_measures,
)
from morphogen.cli import arguments, process, setting_flags
from morphogen.config.spec import RunSpec, resolve
from morphogen.device.cuda_memory import device_name
from morphogen.device.malloc import process_memory
from morphogen.env.setup import build_setup
from morphogen.train.loop import Parts, Scheduler

MIB = 2**20


@torch.no_grad()
def measures(spec: RunSpec) -> list[Measure]:
    """The rows of a resolved spec with two rounds or more, out of the events of its rounds."""
    sink = MemorySink()
    scheduler = Scheduler(build_setup(spec), Parts(sinks=(sink,)))
    scheduler.run()
    scheduler.reporter.close()
    events: dict[str, list[Any]] = defaultdict(list)
    for event in sink.events:
        events[event.name].append(event.data)
    warm_up, *pace = events["Throughput"]
    memory = events.get("MemoryUsed")
    peak = memory[-1].peak_bytes if memory else process_memory("VmHWM") or 0
    compiled = sum(each.compile_s for each in events["Throughput"])
    return [
        median_measure("rate", [each.env_epochs_per_s for each in pace], "env-epochs/s"),
        median_measure("samples", [each.samples_per_s for each in pace], "samples/s"),
        median_measure("first_round", [warm_up.env_epochs_per_s], "env-epochs/s"),
        median_measure("compiling", [compiled], "s"),
        median_measure("peak_memory", [peak / MIB], "MiB"),
        *phase_shares([profile.phases for profile in events["PhaseProfile"][1:]]),
    ]


def phase_shares(profiles: list[dict[str, dict[str, Any]]]) -> list[Measure]:
    """The share of each phase in a round, on the device clock if there is one."""
    shares: dict[str, list[float]] = defaultdict(list)
    for phases in profiles:
        seconds = {
            name: times["wall_s"] if times["device_s"] is None else times["device_s"]
            for name, times in phases.items()
        }
        for name, value in seconds.items():
            shares[name].append(value / sum(seconds.values()))
    return [median_measure(name, values, "share") for name, values in shares.items()]


def main() -> None:
    """Print the rows of the configuration on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_json_file(setting_flags.add_settings(parser))
    parser.set_defaults(**{"rounds": 3, "telemetry.level": "normal"})
    args = parser.parse_args()
    spec = resolve(setting_flags.spec_from_args(args))
    process.set_threads(spec.engine.threads)
    rows = measures(spec)
    device = device_name(build_setup(spec).device)
    facts = machine_facts(device=device, threads=torch.get_num_threads())
    print(machine_line(facts))
    print(format_measures(rows))
    if args.json is not None:
        write_measures(args.json, facts, rows)


if __name__ == "__main__":
    main()
