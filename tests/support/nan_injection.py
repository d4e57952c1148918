"""Small real runs that numbers like NaN, infinity or 1e30 are put into, and what became of every
epoch.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from support.declared_actions import declared
from support.faulty_sinks import all_events
from support.manual_gates import by_hand
from support.small_runs import tiny_setup

from bench.harness.memory_sink import MemorySink
from morphogen.config.groups import GovernorSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.env import phases
from morphogen.env.episodes import Epoch
from morphogen.env.setup import Setup
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import expand_mask
from morphogen.train.loop import Parts, Scheduler
from morphogen.train.reporter import build_record

ENVS, LENGTH = 4, 6
SLOTS, KINDS = ("r0c0", "r1c0"), ("norm", "conv_light")
BAD = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "huge": 1e30}
# In every env the first slot is being blended in through a gate from epoch 2 on; else the policy
# chooses.
STEPS = [
    {
        "epoch": 0,
        "op": "GERMINATE",
        "slot": "r0c0",
        "blueprint": "conv_light",
        "style": "GATED_GATE",
        "tempo": "SLOW",
    },
    {"epoch": 1, "op": "ADVANCE", "slot": "r0c0"},
    {"epoch": 2, "op": "ADVANCE", "slot": "r0c0"},
    {"epoch": 3, "op": "WAIT"},
]


def small(**fields: Any) -> Setup:
    return tiny_setup(
        rounds=9,
        envs=ENVS,
        episode_length=LENGTH,
        slots=SLOTS,
        blueprints=KINDS,
        lifecycle=by_hand(
            min_training_epochs=1, min_prune_age=1, embargo_epochs=1, min_gradient_health=0.0
        ),
        governor=GovernorSpec(panics=2, snapshot_every=2),
        ppo=PpoSpec(epochs=2, minibatches=2),
        telemetry=TelemetrySpec(queue=9999),
        **fields,
    )


def only(env: int | None, leaf: torch.Tensor, value: float) -> torch.Tensor:
    """The leaf with a value in the whole row of one env; None: of every env."""
    here = (
        torch.arange(len(leaf)) == env
        if env is not None
        else torch.ones(len(leaf), dtype=torch.bool)
    )
    return torch.where(expand_mask(here, leaf), value, leaf)


class Run:
    """A scheduler that keeps every epoch; `change(t, state)` replaces the state before an epoch of
    round 0.
    """

    def __init__(
        self, setup: Setup, change: Callable[[int, EnvState], EnvState] | None = None
    ) -> None:
        self.change = change
        self.epochs: list[Epoch] = []
        self.metrics: list[dict[str, float]] = []  # of every update, where they are valid
        spec, self.sink = setup.spec, MemorySink()
        control = declared(spec, STEPS)
        self.scheduler = Scheduler(setup, Parts(control=control, sinks=(self.sink,)))
        self.run_epoch, self.read = self.scheduler.run_epoch, self.scheduler.transfers.read
        self.scheduler.run_epoch, self.scheduler.transfers.read = self._epoch, self._read

    def _epoch(self, carry, t):
        if self.change is not None and self.scheduler.round == 0:
            state = self.change(t, carry.state)
            carry = carry._replace(state=state, inputs=self.scheduler.env.observe(state))
        carry, epoch = self.run_epoch(carry, t)
        self.epochs.append(epoch)
        return carry, epoch

    def _read(self, name, leaves):
        found = self.read(name, leaves)
        if name == "update":
            known = [
                key
                for key, value in found.items()
                if value.ndim == 0 and found.get(f"{key}_valid", True)
            ]
            self.metrics.append({key: float(found[key]) for key in known})
        return found

    def rounds(self, count: int, *patches) -> "Run":
        """So many rounds more."""
        with torch.no_grad(), ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            for _ in range(count):
                self.scheduler.run_round()
        return self

    def events(self, name: str) -> list:
        """Events of a name, checked to be the last ones."""
        self.scheduler.reporter.close()
        return [event for event in all_events(self.sink) if event.name == name]


def records(run: Run) -> list[dict[str, torch.Tensor]]:
    """Records of every epoch that are transferred for telemetry."""
    return [dict(build_record(epoch).items()) for epoch in run.epochs]


def seen(change):
    """A patch of what is observed: `change(round, epoch, observation)`."""
    real = phases.observe

    def observe(state, *args, **knobs):
        found = real(state, *args, **knobs)
        return change(int(state.clock.episode[0]), int(state.clock.epoch[0]), found)

    return patch.object(phases, "observe", observe)
