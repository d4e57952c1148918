"""Small lives of runs to rehearse on a fake device: rounds, save, resume, evaluation."""

from collections import Counter
from itertools import chain, product
from pathlib import Path
from typing import Any

from support.ledgers import expected_ledger
from support.small_runs import tiny

from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec, HostSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import RunSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.env.setup import Setup
from morphogen.evaluation.play import play_arm
from morphogen.train.checkpoint import capture, restore
from morphogen.train.loop import Hooks, Parts, Scheduler

EPOCHS, MINIBATCHES, EPISODES = 2, 2, 2
TASKS = ("tiny", "digits", "digits_impaired", "cifar_deep_multichannel")
LEVELS, PLACEMENTS = ("off", "normal"), ("resident", "streamed")
AMP = ("off", "bfloat16", "float16")


def spec_of(task: str, level: str, placement: str, amp: str, cifar: Path) -> RunSpec:
    """A run of seconds, hosts as narrow as the task allows."""
    data = {"batch": 4, "minibatches": MINIBATCHES, "val_samples": 8, "placement": placement}
    wide: dict[str, Any] = (
        {"host": HostSpec(width=1), "envs": 2} if task.startswith("cifar") else {}
    )
    return tiny(
        task=task,
        rounds=1,
        episode_length=EPOCHS,
        data=DataSpec(**data, **({"dir": str(cifar)} if wide else {})),
        telemetry=TelemetrySpec(level=level),
        engine=EngineSpec(devices=("cpu",), amp=amp),
        ppo=PpoSpec(epochs=1, minibatches=2),
        **wide,
    )


def play_life(setup: Setup) -> Scheduler:
    """Run an epoch, save, resume in a new scheduler, end the round, and evaluate its policy."""
    events: list[object] = []
    first = Scheduler(setup, Parts(sinks=(events.extend,), hooks=Hooks(should_stop=lambda: True)))
    first.run_round()
    saved = capture(first, {})
    second = Scheduler(setup, Parts(sinks=(events.extend,)))
    restore(second, saved)
    second.run()
    play_arm(setup, second.transfers, second.arm, name="ppo", episodes=EPISODES)
    for scheduler in (first, second):
        scheduler.env.feed.close()
        scheduler.reporter.close()
    return second


def expected_counts(spec: RunSpec) -> Counter[str]:
    """The ledger of a life by the fence table."""
    streamed = MINIBATCHES if spec.data.placement == "streamed" else 0
    return Counter(
        expected_ledger(
            rounds=1,
            epochs=EPOCHS,
            evaluated_epochs=EPOCHS,
            result=1,
            checkpoint=1,
            streamed=streamed,
        )
    )


def strays(scheduler: Scheduler) -> list[object]:
    """Leaves of the state that are not on the device."""
    state: Any = scheduler.state
    rows: Any = scheduler.rollout.rows
    pairs = chain(state.items(True, True), rows.items(True, True))
    return [key for key, leaf in pairs if leaf.device.type != scheduler.setup.device.type]


CASES = tuple(product(TASKS, LEVELS, PLACEMENTS, AMP))
