"""Training as a run trains, stacked against the loop: `python -m bench.speed.epoch [--json FILE]`.

An epoch of the task's own length: samples are chosen out of a data set of noise and augmented, and
on a CPU the minibatches replay recorded operators.  Both draw by the feed of the package; the loop
takes, crops, mirrors and normalises the samples of each env by plain torch.  Both train on the same
samples, and the hosts that come out are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import morphogen as mg
from bench.harness.bench_scenes import BenchScene, build_scene
from bench.harness.module_loop import LAYOUTS, ModuleLoop
from bench.harness.timing import Bench, Measure, ms_measure, ratio_measure, run_bench
from bench.speed.minibatch import CHECKED_MINIBATCHES, SHORT_NAMES, TOLERANCE, fastest_layout
from morphogen.config.host import Host
from morphogen.config.parts import DATASETS
from morphogen.data.feed import Draws, ResidentFeed
from morphogen.env.capture import open_capture
from morphogen.env.setup import Setup, build_setup
from morphogen.env.trained_networks import train_piece
from morphogen.state.env import EnvState

SAMPLES = 6000  # of the data set
TASKS = ("digits", "cifar_baseline")


@dataclass(frozen=True)
class EpochScene:
    """Envs with mixed seeds and the data of their epoch."""

    scene: BenchScene
    setup: Setup
    feed: ResidentFeed

    def train(self) -> EnvState:
        """An epoch of all envs, from the same state at every call."""
        parts = {"feed": self.feed, "setup": self.setup, "capture": open_capture(self.setup)}
        return train_piece(self.scene.state, self.scene.plan, **parts, mark=lambda _: None)[0]

    def batches(self, layout: str) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """The samples and labels of every env, minibatch after minibatch, by plain torch."""
        draws = self.feed.epoch(self.scene.state)
        for number in torch.arange(self.feed.spec.minibatches, device=self.setup.device).split(1):
            chosen = draws.select(number)
            yield [
                self._batch(chosen, env, LAYOUTS[layout])
                for env in range(self.scene.state.batch_size[0])
            ]

    def _batch(self, draws: Draws, env: int, layout: torch.memory_format) -> tuple[Tensor, Tensor]:
        crops, index = self.feed.crops, draws.index[env]
        images = (
            crops[index, :, draws.row[env], draws.column[env]]
            if crops is not None
            else self.feed.inputs[index]
        )
        if draws.mirror is not None:
            images = torch.where(draws.mirror[env].view(-1, 1, 1, 1), images.flip(-1), images)
        inputs, labels = self.feed.preparation.prepare(images, draws.labels[env])
        return inputs.contiguous(memory_format=layout), labels


def build_epoch(
    task: str, envs: int, device: torch.device, *, minibatches: int | None = None
) -> EpochScene:
    """The scene of an epoch.  minibatches: None = as many as the task has."""
    scene = build_scene(task, envs, "mixed", device=device)
    data = replace(scene.spec.data, name=register_noise(scene.net.host))
    data = data if minibatches is None else replace(data, minibatches=minibatches)
    setup = build_setup(replace(scene.spec, data=data))
    assert isinstance(setup.feed, ResidentFeed)
    instance = scene.state.instance
    samples = torch.full_like(instance.samples, setup.dataset.sizes["train"])
    state = scene.state.replace(instance=instance.replace(samples=samples))
    return EpochScene(replace(scene, state=state), setup, setup.feed)


def measures(bench: Bench, envs: int = 32) -> list[Measure]:
    """The rows of all tasks, with few envs and with all."""
    return [
        row
        for task in TASKS
        for count in (max(1, envs // 4), envs)
        for row in epoch_comparison(bench, task, count)
    ]


def epoch_comparison(bench: Bench, task: str, envs: int) -> list[Measure]:
    """Speed of an epoch of stacked training over the loop."""
    name, ours = f"epoch_{SHORT_NAMES[task]}_e{envs}", build_epoch(task, envs, bench.device)
    layout = fastest_layout(bench, build_scene(task, min(envs, 4), "mixed", device=bench.device))
    bench.record_checksum(name, _check_same_hosts(task, envs, bench.device, layout))
    loop = ModuleLoop(ours.scene, layout)
    seconds = bench.time_interleaved(
        {"loop": lambda: loop.train(ours.batches(layout)), "stacked": ours.train}, warm=False
    )
    taken = ours.feed.spec.minibatches
    times = [
        ms_measure(f"{name}_{form}_ms", [t / taken for t in found])
        for form, found in seconds.items()
    ]
    return [ratio_measure(name, seconds["loop"], seconds["stacked"]), *times]


def _check_same_hosts(task: str, envs: int, device: torch.device, layout: str) -> Tensor:
    """The hosts that both forms have trained."""
    ours = build_epoch(task, envs, device, minibatches=CHECKED_MINIBATCHES)
    trained, loop = ours.train().host.params, ModuleLoop(ours.scene, layout)
    loop.train(ours.batches(layout))
    torch.testing.assert_close(loop.parameters(), trained, rtol=TOLERANCE, atol=TOLERANCE)
    return trained


def register_noise(host: Host) -> str:
    """The name of a data set of noise that fits a host."""
    name, noise = "noise-" + "x".join(map(str, host.input_shape)), torch.Generator().manual_seed(7)
    images = torch.randint(256, (SAMPLES, *host.input_shape), generator=noise, dtype=torch.uint8)
    labels = torch.arange(SAMPLES) % host.classes
    DATASETS.register(name, mg.from_arrays(name, images, labels))
    return name


if __name__ == "__main__":
    run_bench(__doc__, measures)
