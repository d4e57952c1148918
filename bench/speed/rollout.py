"""Epochs of a run on digits, as the scheduler makes them: `python -m bench.speed.rollout [--envs 1
2 4] [--svg FILE]`.

Prints env-epochs per second and the share of control (all but training and validation) over the
number of envs, with mixed seeds in all slots and no actions, eager and, with `--compiled 1 32 512`,
compiled, and draws them.

`control_share` and `record_share` (a part of it) cover the first epochs of
an episode under an untrained policy, where hosts are bare and training is cheapest.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.harness.bench_scenes import (
    EPOCH_MINIBATCHES,
    add_seeds,
    build_scene,
    build_scheduler,
    seed_layout,
)
from bench.harness.chart import ChartLine, draw_chart
from bench.harness.timing import (
    Bench,
    Measure,
    build_parser,
    finish_bench,
    median_measure,
    ms_measure,
    ratio_measure,
    start_bench,
)
from morphogen.env.episodes import first_carry
from morphogen.log.log_file import LogFile
from morphogen.train.loop import Scheduler

ENVS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
EPISODE_EPOCHS = 12  # epochs of a life that `control_share` looks at
WARMUP_EPOCHS = 2  # epochs before them that count for nothing: in the first one graphs are compiled
LEARNING_PHASES = ("data", "train", "validate")  # phases; all others are control
EpochSeconds = list[dict[str, float]]  # per epoch, seconds of its phases


def time_epochs(
    bench: Bench, envs: int, count: int, *, kind: str = "", **settings: Any
) -> EpochSeconds:
    """Time the phases of the epochs of one episode, in seconds; `kind`: population of seeds placed
    at its start.

    Events go to a file, as in a run.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = build_scheduler(
            envs, bench.device, sinks=(LogFile(Path(folder) / "events.jsonl"),), **settings
        )
        found = _run_epochs(bench, own, count, kind)
        own.reporter.close()
    return found


@torch.no_grad()
def _run_epochs(bench: Bench, run: Scheduler, count: int, kind: str) -> EpochSeconds:
    """The first epochs of a life, each a round's epoch as the scheduler makes it."""
    setup = run.setup
    carry = first_carry(run.env, run.policy)
    if kind:
        layout = seed_layout(kind, setup.spec.envs, setup.net, setup.device)
        state = add_seeds(carry.state, setup.net, *layout)
        carry = carry._replace(state=state, inputs=run.env.observe(state))
    found = []
    for t in range(WARMUP_EPOCHS + count):
        carry, _ = run.run_epoch(carry, t)
        bench.synchronize()
        spent = run.timer.close()
        found.append(
            {
                name: one.wall_s if one.device_s is None else one.device_s
                for name, one in spent.items()
            }
        )
    bench.record_checksum(
        f"rollout_e{setup.spec.envs}{kind and '_' + kind}", carry.state.host.params
    )
    return found[WARMUP_EPOCHS:]


def control_shares(parts: EpochSeconds) -> tuple[list[float], list[float]]:
    """Share of control, with the record, and share of the record alone, epoch by epoch."""
    whole = [sum(one.values()) for one in parts]
    control = [
        1.0 - sum(one[name] for name in LEARNING_PHASES) / total
        for one, total in zip(parts, whole, strict=True)
    ]
    return control, [one["record_read"] / total for one, total in zip(parts, whole, strict=True)]


def share_rows(
    bench: Bench, envs: int = 32, count: int | None = None, **settings: Any
) -> list[Measure]:
    """The rows on control and bookkeeping."""
    parts = time_epochs(bench, envs, count or EPISODE_EPOCHS, **settings)
    control, record = control_shares(parts)
    return [
        median_measure("control_share", control, "share"),
        median_measure("record_share", record, "share"),
    ]


def empty_slots(
    bench: Bench, envs: int = 32, minibatches: int = EPOCH_MINIBATCHES
) -> list[Measure]:
    """An epoch of hosts with empty slots, over one of hosts declared without any; little, so it
    takes more runs.
    """
    ours = build_scene("digits", envs, "none", minibatches=minibatches, device=bench.device)
    bare = ours.without_slots()
    torch.testing.assert_close(bare.train().host.params, ours.train().host.params)
    forms = {
        "slots": lambda: (ours.train(), ours.validate()),
        "bare": lambda: (bare.train(), bare.validate()),
    }
    seconds = replace(bench, runs=12 * bench.runs).time_interleaved(forms)
    return [ratio_measure("empty_slots", seconds["slots"], seconds["bare"])]


def scan_envs(
    bench: Bench, sizes: tuple[int, ...] = ENVS, *, compiled: bool = False, **settings: Any
) -> list[Measure]:
    """Env-epochs per second and the share of control over the number of envs."""
    found, suffix = [], "_compiled" if compiled else ""
    mode = "default" if compiled else "off"
    for envs in sizes:
        parts = time_epochs(
            bench, envs, bench.runs, kind="mixed", policy_name="wait", compile=mode, **settings
        )
        seconds = [sum(one.values()) for one in parts]
        found += [
            median_measure(
                f"rollout_e{envs}{suffix}", [envs / value for value in seconds], "env-epochs/s"
            )
        ]
        found += [
            median_measure(
                f"rollout_e{envs}{suffix}_control_share", control_shares(parts)[0], "share"
            )
        ]
        found += [ms_measure(f"rollout_e{envs}{suffix}_ms", seconds)]
    return found


def plot_rates(
    path: Path, rows: list[Measure], sizes: tuple[int, ...], compiled: tuple[int, ...] = ()
) -> None:
    """All curves over the number of envs."""
    value = {row.name: row.value for row in rows}

    def line(words: str, own: tuple[int, ...], suffix: str, factor: float = 1.0) -> ChartLine:
        return ChartLine(
            words, [(envs, factor * value[f"rollout_e{envs}{suffix}"]) for envs in own]
        )

    lines = [
        line("env-epochs per second", sizes, ""),
        line("control, percent", sizes, "_control_share", 100.0),
    ]
    if compiled:
        lines += [
            line("env-epochs per second, compiled", compiled, "_compiled"),
            line("control, percent, compiled", compiled, "_compiled_control_share", 100.0),
        ]
    path.write_text(draw_chart("Epochs of envs on digits, mixed seeds", "envs", lines))


def main() -> None:
    """Print the rows on whole epochs and draw them."""
    own = build_parser(__doc__)
    own.add_argument("--envs", type=int, nargs="+", default=list(ENVS), metavar="E")
    own.add_argument(
        "--compiled",
        type=int,
        nargs="*",
        default=[],
        metavar="E",
        help="also compiled; minutes for each",
    )
    own.add_argument("--svg", type=Path, metavar="FILE", help="draw the curves into this file")
    given = own.parse_args()
    bench, sizes, compiled = start_bench(given), tuple(given.envs), tuple(given.compiled)
    rows = [*scan_envs(bench, sizes), *scan_envs(bench, compiled, compiled=True)]
    if given.svg is not None:
        plot_rates(given.svg, rows, sizes, compiled)
    finish_bench(given, bench, [*share_rows(bench), *empty_slots(bench), *rows])


if __name__ == "__main__":
    main()
