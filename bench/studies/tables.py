"""Made-up tables, of "Friedman 1" and of three labels: the host alone, and with each blueprint.

`python -m bench.studies.tables [--json FILE]`: hosts are perceptrons of 4 hidden units.  A seed is
germinated in the first epoch, and fossilised as soon as it may be.  Test scores of the delivered
networks, mean of the envs with its standard error, are in `bench/results/tables.json`.
"""

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import morphogen as mg
from bench.harness.machine import machine_facts
from morphogen.extras.export.grow import score_module

FILE = Path(__file__).parents[1] / "results" / "tables.json"
ROWS, ENVS = 2000, 8
SPEC = {"episode_length": 20, "data": {"minibatches": 16, "batch": 32}}
LIFE = {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 2}


def make_table() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [N, 10] in 0 .. 1, standardised numbers [N], and labels [N, 3]."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 10, generator=draw)
    wave, bow = torch.sin(math.pi * x[:, 0] * x[:, 1]), (x[:, 2] - 0.5).square()
    y = 10 * wave + 20 * bow + 10 * x[:, 3] + 5 * x[:, 4] + torch.randn(ROWS, generator=draw)
    labels = torch.stack(
        [wave > 0.6, (x[:, 5] - 0.5) * (x[:, 6] - 0.5) > 0, bow + x[:, 3] * x[:, 4] > 0.35], -1
    )
    return x, (y - y.mean()) / y.std(), labels


def build_host(outputs: int) -> nn.Module:
    """A perceptron with a slot."""
    return nn.Sequential(nn.Linear(10, 4), nn.ReLU(), mg.Slot(), nn.Linear(4, outputs))


def play(env: mg.Environment, blueprint: str | None) -> list[float]:
    """Test scores of the delivered networks after one episode, percent."""
    state, inputs = env.reset()
    wait = mg.actions.wait(env)
    wanted, keep = wait, mg.actions.build(env, "FOSSILIZE", slot="r0c0")
    if blueprint is not None:
        wanted = mg.actions.build(env, "GERMINATE", slot="r0c0", blueprint=blueprint)
    for _ in range(env.horizon):
        legal = inputs.masks.op.gather(1, wanted[:, :1])
        state, step = env.step(state, torch.where(legal, wanted, wait))
        inputs, wanted = step.inputs, keep
    split = env.setup.dataset.on_test_split().validation
    export = partial(mg.export, env, state, seeds="delivered", normalised=False)
    return [score_module(export(i), split, env.net.criterion) for i in range(env.envs)]


def main() -> None:
    """Print a line per network and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=FILE)
    file = parser.parse_args().json
    torch.set_num_threads(1)
    x, numbers, labels = make_table()
    found: dict[str, Any] = {"machine": machine_facts(device="cpu", threads=1), "envs": ENVS}
    for loss, targets in (("mse", numbers), ("bce_with_logits", labels)):
        outputs = targets.view(ROWS, -1).shape[1]
        host = mg.host_from_module(partial(build_host, outputs))
        data = mg.from_arrays(loss, x, targets)
        task = mg.TaskSpec(name=loss, dataset=data, host=host, loss=loss)
        env = mg.make(task, envs=ENVS, lifecycle=LIFE, **SPEC)
        rows = found[f"{loss}, {task.score_name} %"] = {}
        for blueprint in (None, *(kind for kind in env.limits.kinds if kind)):
            scores = torch.tensor(play(env, blueprint))
            mean, error = float(scores.mean()), float(scores.std()) / ENVS**0.5
            rows[blueprint or "host alone"] = {"mean": round(mean, 2), "error": round(error, 2)}
            print(f"{task.score_name} {mean:.1f} +- {error:.1f} %: {blueprint or 'host alone'}")
    file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
