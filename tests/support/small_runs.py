"""Small real runs for tests: the default task, cut down in every number that only costs time."""

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.manual_gates import by_hand

from morphogen.config.fields import fields_of, is_group, to_settings
from morphogen.config.groups import DataSpec
from morphogen.config.policy_spec import PolicySpec, PpoSpec
from morphogen.config.spec import RunSpec, resolve
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment, open_environment
from morphogen.env.episodes import Epoch, first_carry, run_epoch
from morphogen.env.policies import build_arm
from morphogen.env.setup import Setup, build_setup
from morphogen.evaluation.arms import PlayContext
from morphogen.log.derived_columns import derive_columns
from morphogen.log.events import Envelope
from morphogen.state import rng
from morphogen.steps.score_step import ScoreInputs
from morphogen.train.reporter import build_record

BYHAND = by_hand(min_training_epochs=1, min_prune_age=1, embargo_epochs=1)
QUICK = replace(BYHAND, auto_forward=("TRAIN", "BLEND", "HOLD"))


def plain(**fields: Any) -> RunSpec:
    """A spec without the defaults of its task: a field that is not given has the default of its
    class.
    """
    known = {name: info.default for name, info in fields_of(RunSpec).items()} | fields
    return RunSpec(
        **{name: to_settings(value) if is_group(value) else value for name, value in known.items()}
    )


def tiny(**fields: Any) -> RunSpec:
    """A spec of seconds: two minibatches of 8 samples, 32 validation samples, quick gates, four
    steps of the policy.
    """
    wanted = {
        "rounds": 1,
        "envs": 4,
        "episode_length": 6,
        "final_episodes": 0,
        "data": DataSpec(batch=8, minibatches=2, val_samples=32),
        "lifecycle": BYHAND,
        "policy": PolicySpec(hidden=16),
        "ppo": PpoSpec(epochs=2, minibatches=math.gcd(2, fields.get("envs", 4))),
    }
    return resolve(plain(**{**wanted, **fields}))


def events_by_round(events: Iterable[Envelope]) -> list[dict[str, Any]]:
    """The data of the events about each round, by name."""
    rounds: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.round is not None and event.epoch is None:
            rounds.setdefault(event.round, {})[event.name] = event.data
    return [rounds[number] for number in sorted(rounds)]


def tiny_setup(**fields: Any) -> Setup:
    return build_setup(tiny(**fields))


def context_of(setup: Setup) -> PlayContext:
    """Context of an evaluation."""
    return PlayContext(setup, Transfers(setup.device, time.perf_counter))


def world_of(
    setup: Setup, *, first: int = 0, envs: int | None = None, **options: Any
) -> Environment:
    keys = rng.env_keys(setup.spec.seed, first, setup.spec.envs if envs is None else envs)
    return open_environment(setup, envs=keys, **options)


def live(
    world: Environment, name: str = "random", *, epochs: int | None = None, change=None
) -> list[Epoch]:
    """An episode of a policy, under its control or the one of the world; `change(t, state)` may replace the state before epoch t."""
    arm = build_arm(name, world.setup)
    policy = arm.policy
    world = replace(world, control=arm.control or world.control)
    params = policy.init(world.keys[0] * 0)
    carry = first_carry(world, policy)
    found = []
    with torch.no_grad():
        for t in range(world.setup.spec.episode_length if epochs is None else epochs):
            if change is not None:
                state = change(t, carry.state)
                carry = carry._replace(state=state, inputs=world.observe(state))
            carry, epoch = run_epoch(world, policy, params, carry)
            found.append(epoch)
    return found


def score_inputs(epoch: Epoch, *, target_loss: float, episode_length: int) -> ScoreInputs:
    """The inputs of the score of an epoch."""
    step = epoch.step
    measured = step.outcome, step.measured, step.report, step.validation
    past, now = epoch.inputs.facts, step.inputs.facts
    assert past is not None
    assert now is not None
    sizes = step.host_params, past.seed_params, now.seed_params
    return ScoreInputs(epoch.before, *measured, *sizes, target_loss, episode_length)


def complete_record(epoch: Epoch) -> dict[str, np.ndarray]:
    """The record of an epoch with the columns that follow from it, [E, ...]."""
    return derive_columns({name: leaf.numpy() for name, leaf in build_record(epoch).items()})


def cifar_files(folder: Path, records: int = 40) -> None:
    """Made-up CIFAR files of the binary format."""
    words = np.arange(records * 3073, dtype=np.int64) * 2654435761 % 251
    rows = words.astype(np.uint8).reshape(records, 3073)
    rows[:, 0] = np.arange(records) % 10
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (target / f"{name}.bin").write_bytes(rows.tobytes())


def story_files(folder: Path, stories: int) -> None:
    """Texts of TinyStories made of the documentation: stories of up to 1,024 characters, some of
    them very short.
    """
    topics = "\n\n".join(
        text for _, text in sorted(import_module("pydoc_data.topics").topics.items())
    ).encode()
    for name, count in (("train", stories), ("valid", 20)):
        places = (997 * i % (len(topics) - 1024) for i in range(count))
        lengths = (12 if i % 7 == 3 else 1024 for i in range(count))
        texts = (
            topics[place : place + length] for place, length in zip(places, lengths, strict=True)
        )
        (folder / f"TinyStories-{name}.txt").write_bytes(b"\n<|endoftext|>\n".join(texts))
