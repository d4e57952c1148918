"""Cost of telemetry: alternating rounds on digits at level off and normal: `python -m
bench.speed.telemetry`.

Every run plays the same rounds of a few epochs under the policy that it learns; that all of them
end with the same hosts is checked.  Events go to a file, as in a run.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch

from bench.harness.bench_scenes import build_scheduler
from bench.harness.timing import Bench, Measure, ratio_measure, run_bench
from morphogen.config.telemetry_spec import LEVEL_OFF, TelemetrySpec
from morphogen.log.log_file import LogFile
from morphogen.log.run_directory import EVENTS
from morphogen.train.loop import Scheduler

EPOCHS = 8  # of an episode: hosts that grow for as long, and one update of the policy


@torch.no_grad()
def measures(bench: Bench, envs: int = 32, epochs: int = EPOCHS) -> list[Measure]:
    """Wall time of a round at a level, over the same round without telemetry."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        own = {
            level: _build_scheduler(bench, level, envs, epochs, Path(folder))
            for level in (LEVEL_OFF, "normal")
        }
        for one in own.values():
            ends.callback(one.env.close)
            ends.callback(one.reporter.close)
        seconds = bench.time_interleaved({level: one.run_round for level, one in own.items()})
    hosts = {level: _host_params(one) for level, one in own.items()}
    bench.record_checksum("telemetry", hosts[LEVEL_OFF])
    torch.testing.assert_close(hosts["normal"], hosts[LEVEL_OFF], rtol=0, atol=0)
    return [ratio_measure("telemetry_normal", seconds["normal"], seconds[LEVEL_OFF])]


def _build_scheduler(bench: Bench, level: str, envs: int, epochs: int, folder: Path) -> Scheduler:
    telemetry = TelemetrySpec(level=level)
    (folder / level).mkdir()
    sinks = () if level == LEVEL_OFF else (LogFile(folder / level / EVENTS),)
    return build_scheduler(
        envs, bench.device, sinks=sinks, telemetry=telemetry, episode_length=epochs
    )


def _host_params(run: Scheduler) -> torch.Tensor:
    if run.state is None:
        raise ValueError("no round was run")
    return run.state.host.params


if __name__ == "__main__":
    run_bench(__doc__, measures)
