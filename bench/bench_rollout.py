"""Epochs of a run on digits, as the scheduler makes them: `python -m bench.bench_rollout [--envs 1 2 4] [--svg FILE]`.

Prints env-epochs per second and the share of control (all but training and validation) over the number of envs, with
mixed seeds in all slots and an untrained policy, and draws both.  `control_share` and `record_share` (a part of it) are
those of the first epochs of a life, where hosts are bare and training is cheapest.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench.bare import Bare
from bench.chart import Line, draw
from bench.scenes import planted, scene, scheduler, seeds
from bench.timing import Bench, close, milliseconds, parser, start
from morphogen.run import scheduler as runner
from morphogen.run import units
from morphogen.run.data.feed import Feed
from morphogen.run.measures import Measure, over, ratio
from morphogen.run.telemetry.writer import JsonLines
from morphogen.run.world import forget

ENVS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LIFE = 12  # epochs of a life that `control_share` looks at
TRAINING = (
    *((units, name, "train") for name in ("start_epoch", "train_minibatch", "finish_epoch")),
    *((Feed, name, "train") for name in ("epoch", "batch")),
)
Parts = list[dict[str, float]]  # per epoch, seconds of its parts and of the whole


class Watch:
    """Seconds of the parts of an epoch."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.seconds = bench, dict.fromkeys(("epoch", "train", "validate", "record"), 0.0)

    def around(self, part: str, call: Callable, when: Callable[..., bool] = lambda *_: True) -> Callable:
        """The call, timed as a part wherever `when` says so of its arguments."""

        def timed(*given: Any, **named: Any) -> Any:
            if not when(*given):
                return call(*given, **named)
            self.bench.settle()
            started = time.perf_counter()
            found = call(*given, **named)
            self.bench.settle()
            self.seconds[part] += time.perf_counter() - started
            return found

        return timed


def epochs(bench: Bench, envs: int, count: int, *, kind: str = "", **settings: Any) -> Parts:
    """Seconds of the parts of so many epochs of one life; with `kind`, of a population that stands there at the start.

    A first epoch counts for nothing.  Events go to a file, as in a run.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        sink = JsonLines(Path(folder) / "events.jsonl")
        own = scheduler(envs, bench.device, sinks=(sink,), **settings)
        watch = Watch(bench)
        for place, name, part in (*TRAINING, (units, "validate", "validate")):
            patches.enter_context(mock.patch.object(place, name, watch.around(part, getattr(place, name))))
        for place, name in ((runner, "record"), (own, "_read")):
            patches.enter_context(mock.patch.object(place, name, watch.around("record", getattr(place, name))))
        send = watch.around("record", own.fences.send, lambda name, *_: name == "record")
        patches.enter_context(mock.patch.object(own.fences, "send", send))
        found = _live(own, watch, count + 1, kind)[1:]
        sink.close()
    return found


def _live(own: runner.Scheduler, watch: Watch, count: int, kind: str) -> Parts:
    """The first epochs of a life, each a round's epoch as the scheduler makes it."""
    setup, state = own.setup, own.world.reset(0)
    if kind:
        state = planted(state, setup.net, *seeds(kind, setup.spec.envs, len(setup.net.slots), setup.device))
    hidden = own.policy.initial_hidden(setup.spec.envs, device=setup.device)
    segment, found = torch.ones_like(state.signals.measured), []
    for t in range(count):
        watch.seconds = dict.fromkeys(watch.seconds, 0.0)
        whole = watch.around("epoch", own.run_epoch)(state, hidden, segment, t)
        state, segment = whole.after, whole.score.terminated
        hidden = forget(whole.choice.hidden, segment)
        found.append(watch.seconds)
    watch.bench.saw(f"rollout_e{setup.spec.envs}{kind and '_' + kind}", state.host.params)
    return found


def shares(parts: Parts) -> tuple[list[float], list[float]]:
    """Share of control, with the record, and share of the record alone, epoch by epoch."""
    control = [1.0 - (one["train"] + one["validate"]) / one["epoch"] for one in parts]
    return control, [one["record"] / one["epoch"] for one in parts]


def share_rows(bench: Bench, envs: int = 32, count: int | None = None, **settings: Any) -> list[Measure]:
    """The rows on control and bookkeeping."""
    control, record = shares(epochs(bench, envs, count or LIFE, **settings))
    return [over("control_share", control, "share"), over("record_share", record, "share")]


def empty_slots(bench: Bench, envs: int = 32, minibatches: int = 36) -> list[Measure]:
    """An epoch of bare hosts with slots, over one of hosts that have none."""
    ours = scene("digits", envs, "none", minibatches=minibatches, device=bench.device)
    bare = Bare(ours)
    torch.testing.assert_close(bare.train(), ours.train().host.params)
    forms = {"slots": lambda: (ours.train(), ours.validate()), "bare": lambda: (bare.train(), bare.validate())}
    seconds = bench.interleaved(forms)
    return [ratio("empty_slots", seconds["slots"], seconds["bare"])]


def scan(bench: Bench, sizes: tuple[int, ...] = ENVS, **settings: Any) -> list[Measure]:
    """Env-epochs per second and the share of control over the number of envs."""
    found = []
    for envs in sizes:
        parts = epochs(bench, envs, bench.runs, kind="mixed", **settings)
        rate = [envs / one["epoch"] for one in parts]
        found += [over(f"rollout_e{envs}", rate, "env-epochs/s")]
        found += [over(f"rollout_e{envs}_control_share", shares(parts)[0], "share")]
        found += [milliseconds(f"rollout_e{envs}_ms", [one["epoch"] for one in parts])]
    return found


def plot(path: Path, sizes: tuple[int, ...], rows: list[Measure]) -> None:
    """Both curves over the number of envs."""
    value = {row.name: row.value for row in rows}
    rates = Line("env-epochs per second", [(envs, value[f"rollout_e{envs}"]) for envs in sizes])
    share = Line("control, percent", [(envs, 100 * value[f"rollout_e{envs}_control_share"]) for envs in sizes])
    path.write_text(draw("Epochs of envs on digits, mixed seeds", "envs", [rates, share]))


def main() -> None:
    """Print the rows on whole epochs and draw them."""
    own = parser(__doc__)
    own.add_argument("--envs", type=int, nargs="+", default=list(ENVS), metavar="E")
    own.add_argument("--svg", type=Path, metavar="FILE", help="draw the curves into this file")
    given = own.parse_args()
    bench, sizes = start(given), tuple(given.envs)
    rows = scan(bench, sizes)
    if given.svg is not None:
        plot(given.svg, sizes, rows)
    close(given, bench, [*share_rows(bench), *empty_slots(bench), *rows])


if __name__ == "__main__":
    main()
