"""Calls of a training minibatch without compiled kernels: `python -m bench.speed.launches [--json
FILE]`.

A launch is an operator that would start work on a GPU: views and empty tensors start none, a sort
six, the gradient of a convolution three.  Python calls belong to one minibatch of one sample, C
functions included.  Neither depends on the envs, on the samples or on the machine.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from unittest import mock

from torch.utils._python_dispatch import TorchDispatchMode

from bench.harness.bench_scenes import build_scene
from bench.harness.timing import (
    Measure,
    build_parser,
    finish_bench,
    median_measure,
    start_bench,
)
from morphogen import kernels
from morphogen.state.measure import InputBatch
from morphogen.steps.train import start_epoch

ENVS = 7  # every slot holds every blueprint
SCENES = (
    ("digits", "none"),
    ("digits", "light"),
    ("digits", "mixed"),
    ("cifar_deep_multichannel", "mixed"),
)
_NO_LAUNCH = (
    "_unsafe_view",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
)
_MANY_LAUNCHES = {"sort": 6, "convolution_backward": 3}


class LaunchCounter(TorchDispatchMode):
    """Count the launches of the operators that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator and count its launches."""
        name = func.overloadpacket.__name__
        self.launches += 0 if func.is_view or name in _NO_LAUNCH else _MANY_LAUNCHES.get(name, 1)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def plain_path() -> Iterator[None]:
    """Compute everything in plain torch, as on a GPU."""
    with mock.patch.object(kernels, "AVAILABLE", False):
        yield


def minibatch_call(task: str, kind: str) -> Callable[[], object]:
    """Return a training step on one sample of every env."""
    scene = build_scene(task, ENVS, kind, minibatches=1)
    step, (batch,) = scene.minibatch_step, scene.batches
    images, labels = batch.inputs[:, :1].contiguous(), batch.labels[:, :1].contiguous()
    sample = InputBatch(inputs=images, labels=labels, batch_size=[ENVS])
    progress = start_epoch(scene.state, scene.plan, net=scene.net)
    return lambda: step(progress, sample)


def count_launches(call: Callable[[], object]) -> int:
    """Return the launches of a call."""
    with plain_path(), LaunchCounter() as counter:
        call()
    return counter.launches


def count_python_calls(call: Callable[[], object]) -> int:
    """Return the calls of Python and C functions in a call."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    with plain_path():
        call()  # builds what later calls find
        sys.setprofile(count)
        try:
            call()
        finally:
            sys.setprofile(None)
    return calls


def measures() -> list[Measure]:
    """The rows on calls."""
    found = []
    for task, kind in SCENES:
        call, name = minibatch_call(task, kind), f"{task}_{kind}"
        found += [
            median_measure(f"launches_{name}", [float(count_launches(call))], "calls"),
            median_measure(f"python_{name}", [float(count_python_calls(call))], "calls"),
        ]
    return found


def main() -> None:
    """Print the rows on calls."""
    given = build_parser(__doc__).parse_args()
    finish_bench(given, start_bench(given), measures())


if __name__ == "__main__":
    main()
