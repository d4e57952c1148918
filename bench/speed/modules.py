"""Hosts from modules: `python -m bench.speed.modules [--envs 8 32 128] [--json FILE]`.

Bare hosts of one minibatch after another, from the same parameters: the CNN of the digits as a
module of plain torch against the host of the package, and against `torch.func.vmap` over stacked
modules with their SGD written by hand.  A small residual network and a perceptron have no host of
the package.  Hosts train as a run trains them, replaying recorded operators on a CPU, and operator
by operator ("eager").  All forms train on the same batches, and their parameters are compared.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

import morphogen as mg
from bench.harness.timing import (
    Bench,
    Measure,
    build_parser,
    finish_bench,
    ms_measure,
    ratio_measure,
    start_bench,
)
from morphogen.config.groups import HostSpec, LifecycleSpec
from morphogen.config.host import CnnSpec
from morphogen.config.registry import extra_parts
from morphogen.device.graphs import cuda_graphs
from morphogen.env.capture import Capture
from morphogen.hosts.net import Net
from morphogen.hosts.plan import empty_plan
from morphogen.state.measure import InputBatch
from morphogen.state.schema import empty_state
from morphogen.steps.train import TrainState, start_epoch, train_minibatch

BATCH = 32
MINIBATCHES = 20  # in a timed call, as in an epoch of the digits
ENVS = (8, 32, 128)
TOLERANCE = 2e-3  # largest difference of a parameter between the forms, float32
SPEC = HostSpec(max_grad_norm=None)
DIGITS = CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)


def digits_twin() -> nn.Module:
    """The CNN of the digits."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.GroupNorm(1, 4),
        nn.ReLU(),
        mg.Slot(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1, bias=False),
        nn.GroupNorm(1, 8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


class Residual(nn.Module):
    """Two residual blocks of 8 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 3, padding=1),
                nn.GroupNorm(1, 8),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3, padding=1),
                nn.GroupNorm(1, 8),
            )
            for _ in range(2)
        )
        self.grow = nn.ModuleList(mg.Slot() for _ in range(2))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, slot in zip(self.blocks, self.grow, strict=True):
            x = slot(torch.relu(x + block(x)))
        return self.head(x.mean((2, 3)))


def perceptron() -> nn.Module:
    """A perceptron of two layers."""
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), mg.Slot(), nn.Linear(64, 10))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], CnnSpec | None]] = {
    "digits": (digits_twin, (1, 8, 8), DIGITS),
    "residual": (Residual, (3, 8, 8), None),
    "perceptron": (perceptron, (20,), None),
}


@dataclass
class Scene:
    """Bare hosts of a network and their batches."""

    net: Net
    params: Tensor
    inputs: Tensor  # [minibatches, E, B, ...]
    labels: Tensor

    def __post_init__(self) -> None:
        envs = len(self.params)
        sizes = self.net.sizes(envs=envs, window=4, classes=self.net.host.classes)
        keys = mg.rng.env_keys(0, 0, envs, self.params.device)
        state = empty_state(sizes, keys, TensorDict({}, batch_size=[envs]))
        classes = torch.full_like(state.instance.classes, self.net.host.classes)
        self.state = state.replace(
            host=state.host.replace(params=self.params),
            instance=state.instance.replace(classes=classes),
        )
        self.plan = empty_plan(envs, self.net)

    def train(self, capture: Capture) -> Tensor:
        """Train all minibatches; return the parameters."""

        def train_next(carry: tuple[TrainState, Tensor]) -> tuple[TrainState, Tensor]:
            progress, number = carry
            batch = InputBatch(
                inputs=self.inputs.index_select(0, number)[0],
                labels=self.labels.index_select(0, number)[0],
                batch_size=[len(self.params)],
            )
            progress, _ = train_minibatch(
                progress, batch, self.plan, net=self.net, spec=SPEC, lifecycle=LifecycleSpec()
            )
            return progress, number + 1

        start = start_epoch(self.state, self.plan, net=self.net)
        first = torch.zeros(1, dtype=torch.int64, device=self.params.device)
        return capture.repeat(train_next, (start, first), len(self.inputs))[0].weights.host


def recording(device: torch.device) -> Capture:
    """Capture with the graphs of a device."""
    if device.type == "cuda":
        return Capture(cuda_graphs(device))
    return Capture(extra_parts("morphogen.graphs")["cpu"]())


def train_by_vmap(module: nn.Module, scene: Scene) -> Tensor:
    """Train the same networks by vmap over stacked modules; return their parameters."""
    names = dict(module.named_parameters())
    sizes = [leaf.numel() for leaf in names.values()]
    parts = scene.params.split(sizes, dim=1)
    params = {
        name: part.view(-1, *leaf.shape)
        for (name, leaf), part in zip(names.items(), parts, strict=True)
    }
    velocity = {name: torch.zeros_like(leaf) for name, leaf in params.items()}

    def loss(own: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module, own, (inputs,)), labels)

    step = vmap(grad_and_value(loss))
    for inputs, labels in zip(scene.inputs, scene.labels, strict=True):
        grads, _ = step(params, inputs, labels)
        for name, leaf in params.items():
            decayed = grads[name] + SPEC.weight_decay * leaf
            velocity[name] = SPEC.momentum * velocity[name] + decayed
            params[name] = leaf - SPEC.lr * velocity[name]
    return torch.cat([leaf.flatten(1) for leaf in params.values()], dim=1)


def compare(bench: Bench, name: str, envs: int) -> list[Measure]:
    """Speed of a module host over vmap by hand, and over the host of the package if it has one."""
    build, shape, package = CASES[name]
    host = mg.host_from_module(build, example=torch.zeros(shape))
    source = torch.Generator().manual_seed(3)
    net = Net(host, host.all_slots, all_classes=True)
    noise = torch.rand(envs, net.host_size, generator=source)
    params = net.host_layout.draw(noise).to(bench.device)
    inputs = torch.randn(MINIBATCHES, envs, BATCH, *shape, generator=source).to(bench.device)
    labels = torch.randint(10, (MINIBATCHES, envs, BATCH), generator=source).to(bench.device)
    scene = Scene(net, params, inputs, labels)
    capture = recording(bench.device)
    forms: dict[str, Callable[[], Tensor]] = {
        "module": lambda: scene.train(capture),
        "eager": lambda: scene.train(Capture()),
        "vmap": lambda: train_by_vmap(host.module, scene),
    }
    if package is not None:
        built_in = Net(package, package.all_slots, all_classes=True)
        own = Scene(built_in, params, inputs, labels)
        forms["package"] = lambda: own.train(capture)
    trained = {form: train() for form, train in forms.items()}
    for found in trained.values():
        torch.testing.assert_close(found, trained["module"], rtol=TOLERANCE, atol=TOLERANCE)
    row = f"module_{name}_e{envs}"
    bench.record_checksum(row, trained["module"])
    seconds = bench.time_interleaved(forms)
    rows = [
        ratio_measure(f"{row}_over_vmap", seconds["vmap"], seconds["module"]),
        ratio_measure(f"{row}_eager_over_vmap", seconds["vmap"], seconds["eager"]),
    ]
    if package is not None:
        rows.append(ratio_measure(f"{row}_over_package", seconds["package"], seconds["module"]))
    return rows + [
        ms_measure(f"{row}_{form}_ms", [t / MINIBATCHES for t in found])
        for form, found in seconds.items()
    ]


def measures(bench: Bench, counts: tuple[int, ...] = ENVS) -> list[Measure]:
    """The rows of all networks and numbers of envs."""
    return [row for name in CASES for envs in counts for row in compare(bench, name, envs)]


if __name__ == "__main__":
    parser = build_parser(__doc__)
    parser.add_argument("--envs", type=int, nargs="+", default=ENVS, help="numbers of envs")
    given = parser.parse_args()
    opened = start_bench(given)
    finish_bench(given, opened, measures(opened, tuple(given.envs)))
