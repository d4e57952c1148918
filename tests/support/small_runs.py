"""Small real runs for tests: the default task, cut down in every number that only costs time."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.config.fields import Spec, fields_of, to_settings
from morphogen.config.groups import DataSpec, LifecycleSpec, PolicySpec, PpoSpec
from morphogen.config.spec import RunSpec, resolve
from morphogen.device.transfers import Transfers
from morphogen.engine.epoch import Epoch, reset_hidden, run_epoch
from morphogen.engine.policies import build_arm
from morphogen.engine.setup import Setup, build_setup
from morphogen.engine.vector_env import VectorEnv
from morphogen.vocab.purpose import Purpose


def plain(**fields: Any) -> RunSpec:
    """A spec without the defaults of its task: a field that is not given has the default of its class."""
    known = {name: info.default for name, info in fields_of(RunSpec).items()} | fields
    return RunSpec(**{name: to_settings(value) if isinstance(value, Spec) else value for name, value in known.items()})


def tiny(**fields: Any) -> RunSpec:
    """A spec of seconds: two minibatches of 8 samples, 32 validation samples, quick gates, four steps of the policy."""
    wanted = {
        "rounds": 1,
        "envs": 4,
        "episode_length": 6,
        "final_episodes": 0,
        "data": DataSpec(batch=8, minibatches=2, val_samples=32),
        "lifecycle": LifecycleSpec(min_training_epochs=1, min_prune_age=1, embargo_epochs=1),
        "policy": PolicySpec(hidden=16),
        "ppo": PpoSpec(epochs=2, minibatches=math.gcd(2, fields.get("envs", 4))),
    }
    return resolve(plain(**{**wanted, **fields}))


def tiny_setup(**fields: Any) -> Setup:
    return build_setup(tiny(**fields))


def world_of(setup: Setup, *, first: int = 0, envs: int | None = None) -> VectorEnv:
    fences = Transfers(setup.device, time.perf_counter)
    return VectorEnv(setup, fences, instances=Purpose.INSTANCE, first=first, envs=envs or setup.spec.envs)


def live(world: VectorEnv, name: str = "random", *, epochs: int | None = None, change=None) -> list[Epoch]:
    """An episode of a policy; `change(t, state)` may replace the state before epoch t."""
    policy, world.control, _ = build_arm(name, world.setup)
    params = policy.init(world.key[0] * 0)
    state = world.reset(0)
    hidden = policy.initial_hidden(world.key.shape[0])
    found = []
    with torch.no_grad():
        for t in range(world.setup.spec.episode_length if epochs is None else epochs):
            state = state if change is None else change(t, state)
            epoch = run_epoch(world, state, policy, params, hidden)
            state, hidden = epoch.score.after, reset_hidden(epoch.act.choice.hidden, epoch.score.step.terminated)
            found.append(epoch)
    return found


def cifar_files(folder: Path, records: int = 40) -> None:
    """Made-up CIFAR files of the binary format."""
    words = np.arange(records * 3073, dtype=np.int64) * 2654435761 % 251
    rows = words.astype(np.uint8).reshape(records, 3073)
    rows[:, 0] = np.arange(records) % 10
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        (target / name).write_bytes(rows.tobytes())
