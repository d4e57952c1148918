"""Fix the numbers of the digits tasks by experiment: `python bench/calibrate.py --json FILE --base 6 --lr 0.15 ...`.

Every row is one configuration on held-out single instances: accuracy of the bare host, or of the host with a seed that
is there from the start (static), as mean with its 95 % interval over envs.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import torch

from morphogen.nets.net import Net
from morphogen.run.fences import Fences
from morphogen.run.policies import arm_of
from morphogen.run.setup import Setup, build_setup
from morphogen.run.statistics import interval
from morphogen.run.world import World
from morphogen.state import rng
from morphogen.state.env import EnvState
from morphogen.steps.sow import sow
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.spec import DataSpec, HostSpec, RunSpec, resolve
from morphogen.vocab.stage import Algorithm, Stage

HELD_OUT = 10**6 + 1000  # episodes that no evaluation of a run uses


def spec_of(task: str, *, host: HostSpec, minibatches: int, batch: int, **sizes: int) -> RunSpec:
    data = DataSpec(minibatches=minibatches, batch=batch)
    return resolve(RunSpec(task=task, instances="single", host=host, data=data, **sizes))


def planted(state: EnvState, net: Net, *, slot: str, blueprint: Blueprint, key: torch.Tensor) -> EnvState:
    """The state with a kept seed in one slot of every env."""
    s = net.names.index(slot)
    here = torch.zeros_like(state.slots.stage, dtype=torch.bool)
    here[:, s] = True
    put = {
        "stage": int(Stage.FOSSILIZED),
        "blueprint": int(blueprint),
        "algorithm": int(Algorithm.ADD),
        "alpha": 1.0,
        "alpha_target": 1.0,
    }
    slots = state.slots.replace(**{k: torch.where(here, v, getattr(state.slots, k)) for k, v in put.items()})
    rows = tuple(torch.arange(len(here)) if i == s else torch.arange(0) for i in range(len(net.slots)))
    noise = tuple(
        rng.uniform(rng.stream(key[row], Purpose.SEED_INIT, round=HELD_OUT), size)
        for row, size in zip(rows, net.seed_sizes, strict=True)
    )
    return sow(state.replace(slots=slots), rows, noise, net=net)


def curve(setup: Setup, *, slot: str = "", blueprint: Blueprint = Blueprint.NOOP) -> torch.Tensor:
    """Validation accuracy after every epoch, [T, E]."""
    policy, control, params = arm_of("wait", setup)
    fences = Fences(setup.device, time.perf_counter)
    world = World(setup, fences, instances=Purpose.INSTANCE_HELD_OUT, envs=setup.spec.envs, control=control)
    state = world.reset(HELD_OUT)
    if slot:
        state = planted(state, setup.net, slot=slot, blueprint=blueprint, key=world.key)
    found = []
    for _ in range(setup.spec.episode_length):
        epoch = world.epoch(state, policy, params, policy.initial_hidden(setup.spec.envs))
        state = epoch.after
        found.append(state.signals.val_acc)
    return torch.stack(found)


def row(spec: RunSpec, *, slot: str = "", blueprint: Blueprint = Blueprint.NOOP) -> dict:
    began = time.perf_counter()
    acc = curve(build_setup(spec), slot=slot, blueprint=blueprint)
    quarter = spec.episode_length // 4
    mean, low, high = interval(acc[-1].numpy(), seed=0)
    return {
        "task": spec.task,
        "base": spec.host.width,
        "lr": spec.host.lr,
        "seed_lr": spec.host.seed_lr,
        "weight_decay": spec.host.weight_decay,
        "minibatches": spec.data.minibatches,
        "batch": spec.data.batch,
        "envs": spec.envs,
        "epochs": spec.episode_length,
        "seed": f"{blueprint.label} in {slot}" if slot else "none",
        "final": mean,
        "low": low,
        "high": high,
        "at_quarter": acc[quarter - 1].mean().item(),
        "at_half": acc[2 * quarter - 1].mean().item(),
        "at_three_quarters": acc[3 * quarter - 1].mean().item(),
        "final_by_env": acc[-1].tolist(),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--base", type=int, nargs="+", default=[4])
    parser.add_argument("--lr", type=float, nargs="+", default=[0.05])
    parser.add_argument("--seed-lr", type=float, nargs="+", default=[0.05])
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--minibatches", type=int, nargs="+", default=[8])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=48)
    parser.add_argument("--static", nargs="*", default=[], help="BLUEPRINT@SLOT, ...")
    given = parser.parse_args()
    rows = []
    sweep = [(b, lr, m) for b in given.base for lr in given.lr for m in given.minibatches]
    for base, lr, minibatches in sweep:
        sizes = {"envs": given.envs, "batch": given.batch, "episode_length": given.epochs, "minibatches": minibatches}
        jobs = [({}, given.seed_lr[0])]
        for static in given.static:
            name, slot = static.split("@")
            jobs += [({"slot": slot, "blueprint": Blueprint[name.upper()]}, seed_lr) for seed_lr in given.seed_lr]
        for seed, seed_lr in jobs:
            host = HostSpec(lr=lr, seed_lr=seed_lr, width=base, weight_decay=given.weight_decay)
            rows.append(row(spec_of(given.task, host=host, **sizes), **seed))
            shown = {k: v for k, v in rows[-1].items() if k != "final_by_env"}
            print(
                " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items()), flush=True
            )
    known = json.loads(given.json.read_text())["rows"] if given.json.exists() else []
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.machine()}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"machine": machine, "rows": known + rows}, indent=1) + "\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
