"""The record of an epoch, part by part, in ms: `python -m bench.speed.record [--envs 32]`.

What share of an epoch they are together is `record_share` of bench_rollout.
"""

import tempfile
from pathlib import Path

from bench.harness.bench_scenes import build_scheduler
from bench.harness.timing import Bench, ms_measure, run_bench
from morphogen.cli.bench import Measure
from morphogen.engine.episodes import run_epoch
from morphogen.engine.reporter import build_facts, build_record
from morphogen.telemetry.derive import derive_details, derive_events
from morphogen.telemetry.record_memory import update_memory
from morphogen.telemetry.writer import JsonlSink

START = (0, 0)  # round and epoch


def measures(bench: Bench, envs: int = 32) -> list[Measure]:
    """Gathering the leaves, their way to the host, what the scheduler makes of them there, and what the writer does.

    `events`: those of the normal level, made and written to a file; `details`: those that debug adds.
    """
    with tempfile.TemporaryDirectory() as folder:
        sink = JsonlSink(Path(folder) / "events.jsonl")
        own = build_scheduler(envs, bench.device)
        hidden = own.policy.initial_hidden(envs, device=own.setup.device)
        epoch = run_epoch(own.env, *own.env.reset(0), own.policy, params=own.params, hidden=hidden)
        leaves, known = build_record(epoch), build_facts(own.setup)
        seen = own.transfers.read("record", leaves)
        memories = update_memory(seen, None, START, known)
        forms = {
            "gather": lambda: build_record(epoch),
            "send": lambda: own.transfers.send("record", leaves),
            "receive": lambda: own.transfers.receive("record"),
            "take": lambda: own.reporter.add_record(own.transfers.receive("record"), START),
            "events": lambda: sink.write(derive_events(seen, memories, START, known)),
            "details": lambda: sink.write(derive_details(seen, memories[1], START, known)),
        }
        seconds = bench.time_interleaved(forms)
        sink.close()
    bench.record_checksum("record", leaves["reward"])
    return [ms_measure(f"record_{name}_ms", found) for name, found in seconds.items()]


if __name__ == "__main__":
    run_bench(__doc__, measures)
