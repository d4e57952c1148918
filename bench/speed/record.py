"""The record, part by part, in ms: `python -m bench.speed.record [--envs 32]`.

Of an epoch: gathering its leaves, their way to the host, and what the reporter does.  Of a round of
eight epochs, in
the writer thread: `encode`, the file of its record.  When the log is read: `events`, all events of
its epochs. The share of the first part in an epoch is `record_share` of `bench.speed.rollout`.
"""

import torch

from bench.harness.bench_scenes import build_scheduler
from bench.harness.memory_sink import MemorySink
from bench.harness.timing import Bench, Measure, ms_measure, run_bench
from morphogen.env.episodes import first_carry, run_epoch
from morphogen.log.derive import derive_events
from morphogen.log.record_files import encode_record
from morphogen.train.reporter import Reporter, build_record, send_record

EPOCHS = 8  # of a round


@torch.no_grad()
def measures(bench: Bench, envs: int = 32) -> list[Measure]:
    """Seconds of every part."""
    sink = MemorySink()
    own = build_scheduler(envs, bench.device, sinks=(sink,), episode_length=EPOCHS)
    own.run_round()
    own.reporter.close()
    _, epoch = run_epoch(own.env, own.policy, own.params, first_carry(own.env, own.policy))
    leaves = build_record(epoch)
    forms = {
        "gather": lambda: build_record(epoch),
        "send": lambda: send_record(own.transfers, leaves, 0),
        "receive": lambda: own.transfers.receive("record"),
        "take": lambda: Reporter(own.setup, ()).add_record(own.transfers.receive("record")),
        "encode": lambda: encode_record(sink.records[-1]),
        "events": lambda: list(derive_events(sink.records[-1])),
    }
    seconds = bench.time_interleaved(forms)
    bench.record_checksum("record", leaves["reward"])
    return [ms_measure(f"record_{name}_ms", found) for name, found in seconds.items()]


if __name__ == "__main__":
    run_bench(__doc__, measures)
