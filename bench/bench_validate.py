"""Validation under all coalitions: shared prefixes against a full row per coalition.

Run: `PYTHONPATH=tests python bench/bench_validate.py [--envs 32] [--threads 1]`.  A full row per coalition is an env
per coalition, the seeds that are off taken out; both forms must give the same accuracies.
"""

import argparse
import statistics
import time

import torch
import worlds

from morphogen.nets.net import Net
from morphogen.state.env import EnvState
from morphogen.steps.validate import validate


def stacked(state: EnvState, net: Net) -> EnvState:
    """One env per coalition: E * K envs that hold only what is on."""
    coalition, _ = worlds.every(state, net)
    envs, width = coalition.shape
    rows = torch.arange(envs).repeat_interleave(width)
    many = state[rows]
    off = torch.stack([(coalition.flatten() >> s) & 1 == 0 for s in range(len(net.slots))], -1)
    stage = torch.where(off & (many.slots.stage >= 4), 1, many.slots.stage)
    return many.replace(slots=many.slots.replace(stage=stage))


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser()
    for name, default in (("--envs", 32), ("--threads", 1), ("--repeats", 5)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    net, split = worlds.net(), worlds.split(worlds.net(), 300)
    shape = (options.envs, 3)
    kinds = 1 + torch.arange(options.envs * 3).view(shape) % 7
    own = torch.full(shape, 6), kinds, 1 + kinds % 3, torch.ones(shape)
    state = worlds.nudge(worlds.grow(worlds.fresh(net, options.envs), net, *own), net)
    asked = worlds.every(state, net)
    many = stacked(state, net)
    single = worlds.every(many, net)[0][:, :1], torch.ones(many.batch_size[0], 1, dtype=torch.bool)
    plans = worlds.plan(state, net, asked=asked), worlds.plan(many, net, asked=single)
    forms = {
        "shared": lambda: validate(state, split, *asked, plans[0], net=net),
        "full rows": lambda: validate(many, split, *single, plans[1], net=net),
    }
    first, second = (form().accuracy.flatten() for form in forms.values())
    print(f"largest difference in points: {float((first - second).abs().max()):.3f}; rows {plans[0].rows}")
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(options.repeats):
        for name, form in forms.items():
            start = time.perf_counter()
            form()
            times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(found) for name, found in times.items()}
    print({name: f"{value:.1f} ms" for name, value in medians.items()})
    print(f"ratio {medians['full rows'] / medians['shared']:.2f}")


if __name__ == "__main__":
    main()
