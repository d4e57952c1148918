"""Tables with numbers and with several labels per row: the host alone, and with each blueprint.

`python -m bench.studies.tables [--envs N] [--json FILE]` makes two tables of 2,000 rows of 10
columns: the function "Friedman 1" with noise of deviation 1, standardised, and three labels that
are nonlinear in the columns.  Hosts are perceptrons of 4 hidden units with one slot after these.  A
seed is germinated in the first epoch, trained, blended and fossilised; a host alone trains for as
many minibatches.  The score is of the delivered network on the test split, the mean of the envs
with its standard error.  The results are in `bench/results/tables.json`.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import morphogen as mg
from bench.harness.machine import machine_facts
from morphogen.extras.export.grow import score_module

FILE = Path(__file__).parents[1] / "results" / "tables.json"
ROWS, EPOCHS, MINIBATCHES, BATCH = 2000, 20, 16, 32
LIFE = {"auto_forward": ["TRAIN", "BLEND", "HOLD"], "min_training_epochs": 2}


def make_table() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [N, 10] in 0 .. 1, standardised numbers [N], and labels [N, 3]."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 10, generator=draw)
    wave, bow = torch.sin(math.pi * x[:, 0] * x[:, 1]), (x[:, 2] - 0.5).square()
    y = 10 * wave + 20 * bow + 10 * x[:, 3] + 5 * x[:, 4] + torch.randn(ROWS, generator=draw)
    corner = (x[:, 5] - 0.5) * (x[:, 6] - 0.5)
    labels = torch.stack([wave > 0.6, corner > 0, bow + x[:, 3] * x[:, 4] > 0.35], -1)
    return x, (y - y.mean()) / y.std(), labels


def build_host(outputs: int) -> nn.Module:
    """A perceptron with a slot."""
    return nn.Sequential(nn.Linear(10, 4), nn.ReLU(), mg.Slot(), nn.Linear(4, outputs))


def play(env: mg.Environment, blueprint: str | None) -> list[float]:
    """Test scores of the delivered networks after one episode, percent."""
    state, inputs = env.reset()
    wait = mg.actions.wait(env)
    actions = [wait]
    if blueprint is not None:
        slot = env.net.names[0]
        actions = [mg.actions.build(env, "GERMINATE", slot=slot, blueprint=blueprint)]
        actions += [mg.actions.build(env, "FOSSILIZE", slot=slot)]
    for epoch in range(env.horizon):
        wanted = actions[min(epoch, len(actions) - 1)]
        legal = inputs.masks.op.gather(1, wanted[:, :1])
        state, step = env.step(state, torch.where(legal, wanted, wait))
        inputs = step.inputs
    split = env.setup.dataset.on_test_split().validation
    modules = [
        mg.export(env, state, i, seeds="delivered", normalised=False) for i in range(env.envs)
    ]
    return [score_module(module, split, env.net.criterion) for module in modules]


def main() -> None:
    """Print a line per network and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--json", type=Path, default=FILE)
    given = parser.parse_args()
    x, numbers, labels = make_table()
    facts = machine_facts(device="cpu", threads=torch.get_num_threads())
    found: dict[str, Any] = {"machine": facts, "envs": given.envs, "tables": {}}
    for loss, targets in (("mse", numbers), ("bce_with_logits", labels)):
        outputs = targets.view(ROWS, -1).shape[1]
        host = mg.host_from_module(lambda outputs=outputs: build_host(outputs))
        own = {"dataset": mg.from_arrays(f"table-{outputs}", x, targets), "host": host}
        task = mg.TaskSpec(name=f"table-{outputs}", **own, loss=loss)
        data = {"minibatches": MINIBATCHES, "batch": BATCH}
        env = mg.make(task, envs=given.envs, episode_length=EPOCHS, data=data, lifecycle=LIFE)
        rows = found["tables"][f"{loss}, {task.score_name} %"] = {}
        for blueprint in (None, *(kind for kind in env.limits.kinds if kind)):
            scores = torch.tensor(play(env, blueprint))
            mean, error = float(scores.mean()), float(scores.std()) / math.sqrt(given.envs)
            rows[blueprint or "host alone"] = {"mean": round(mean, 2), "error": round(error, 2)}
            print(f"{task.score_name} {mean:.1f} +- {error:.1f} %: {blueprint or 'host alone'}")
    given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
