"""The record of an epoch, part by part, in ms: `python -m bench.bench_record [--envs 32]`.

What share of an epoch they are together is `record_share` of bench_rollout.
"""

import tempfile
from pathlib import Path

from bench.scenes import scheduler
from bench.timing import Bench, milliseconds, run
from morphogen.run.measures import Measure
from morphogen.run.record import record
from morphogen.run.telemetry.writer import JsonLines


def measures(bench: Bench, envs: int = 32) -> list[Measure]:
    """Gathering the leaves, their way to the host, and what the host makes of them, the event file included."""
    with tempfile.TemporaryDirectory() as folder:
        own = scheduler(envs, bench.device, sinks=(JsonLines(Path(folder) / "events.jsonl"),))
        state = own.world.reset(0)
        hidden = own.policy.initial_hidden(envs, device=own.setup.device)
        epoch = own.world.epoch(state, own.policy, own.params, hidden)
        leaves = record(epoch)
        forms = {
            "gather": lambda: record(epoch),
            "send": lambda: own.fences.send("record", leaves),
            "receive": lambda: own.fences.receive("record"),
            "events": lambda: own.reporter.take(own.fences.receive("record"), (0, 0)),
        }
        seconds = bench.interleaved(forms)
        own.reporter.close()
    bench.saw("record", leaves["reward"])
    return [milliseconds(f"record_{name}_ms", found) for name, found in seconds.items()]


if __name__ == "__main__":
    run(__doc__, measures)
