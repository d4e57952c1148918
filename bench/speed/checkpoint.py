"""Cost of checkpoints: rounds on digits with and without a save after each: `python -m
bench.speed.checkpoint`.

Both runs live through the same rounds of a few epochs, with their events in a file; that they end
with the same hosts is checked.  A save waits for the disk.  Time and size of the files of the last
one are reported separately.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch

from bench.harness.bench_scenes import build_scheduler
from bench.harness.timing import (
    Bench,
    Measure,
    median_measure,
    ms_measure,
    ratio_measure,
    run_bench,
)
from morphogen.log.log_file import LogFile
from morphogen.log.run_directory import create_directory
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import load_checkpoint, restore
from morphogen.train.checkpointer import Checkpointer
from morphogen.train.loop import Scheduler

EPOCHS = 8  # of an episode


@torch.no_grad()
def measures(bench: Bench, envs: int = 32, epochs: int = EPOCHS) -> list[Measure]:
    """Wall time of a round with a save over one without, of a save, of a load; bytes per
    env.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        home = ends.enter_context(create_directory(Path(folder) / "run", config="{}", manifest={}))
        saved, plain = (
            _build_scheduler(bench, envs, epochs, Path(folder) / name)
            for name in ("saved", "plain")
        )
        for one in (saved, plain):
            ends.callback(one.env.close)
            ends.callback(one.reporter.close)
        keeper = Checkpointer(saved, home, {"run_id": "bench"})
        spent: list[float] = []

        def round_and_save() -> None:
            saved.run_round()
            spent.append(bench.time_call(lambda: keeper.save("periodic")))

        seconds = bench.time_interleaved({"plain": plain.run_round, "saved": round_and_save})
        path = checkpoint_store.list_checkpoints(home.checkpoints)[0]
        loads = bench.time_interleaved(
            {"load": lambda: _load_into(_build_scheduler(bench, envs, epochs, None), path)}
        )["load"]
        size = sum(file.stat().st_size for file in path.iterdir())
    _check_same_hosts(bench, saved, plain)
    return [
        ratio_measure("checkpoint_round", seconds["saved"], seconds["plain"]),
        ms_measure("checkpoint_save", spent[1:]),
        ms_measure("checkpoint_load", loads),
        median_measure("checkpoint_per_env", [size / envs / 2**10], "KiB"),
    ]


def _build_scheduler(bench: Bench, envs: int, epochs: int, log: Path | None) -> Scheduler:
    sinks = () if log is None else (LogFile(log),)
    return build_scheduler(envs, bench.device, sinks=sinks, episode_length=epochs)


def _load_into(fresh: Scheduler, path: Path) -> None:
    """Restore a checkpoint into a new scheduler."""
    restore(fresh, load_checkpoint(path))
    fresh.env.close()
    fresh.reporter.close()


def _check_same_hosts(bench: Bench, saved: Scheduler, plain: Scheduler) -> None:
    if saved.state is None or plain.state is None:
        raise ValueError("no round was run")
    bench.record_checksum("checkpoint", saved.state.host.params)
    torch.testing.assert_close(saved.state.host.params, plain.state.host.params, rtol=0, atol=0)


if __name__ == "__main__":
    run_bench(__doc__, measures)
