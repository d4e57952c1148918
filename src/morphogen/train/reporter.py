"""Reporter: collects the records of epochs; sums up, judges and hands on every round.

The reporter keeps copies: nothing in a run depends on it.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.device.transfers import Transfers
from morphogen.env.episodes import Epoch
from morphogen.env.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.log.codec import Array
from morphogen.log.derived_columns import derive_columns
from morphogen.log.events import Envelope, Event, Json
from morphogen.log.kinds.ppo import ppo_event
from morphogen.log.kinds.round import AnomalyDetected, BatchSummary
from morphogen.log.monitors import FinishedRound, RunPlan, build_monitors
from morphogen.log.round_record import Columns, Record, RoundRecord, RunFacts, slot_history
from morphogen.log.round_summary import (
    RoundCosts,
    episode_ends,
    summarise,
    throughput_events,
)
from morphogen.log.writer import AnySink, LogWriter, Losses
from morphogen.ppo.minibatch import KL_STOP_FACTOR
from morphogen.state.tree_ops import get_leaves, unsafe_tensordict
from morphogen.vocab.action import HEADS
from morphogen.vocab.blueprint import code_labels
from morphogen.vocab.text import name_map


def build_facts(setup: Setup) -> RunFacts:
    """Constants of a run that events need."""
    spec = setup.spec
    net = setup.net
    return RunFacts(
        task=spec.task,
        slots=net.names,
        blueprints=code_labels(net.kinds),
        components=setup.rule.components,
        epochs=spec.episode_length,
        success_accuracy=setup.task.success,
        objective=setup.task.objective,
        gamma=spec.ppo.gamma,
        envs=spec.envs,
        samples=spec.data.minibatches * spec.data.batch,
        host=net.host.numbers(),
    )


@dataclass(frozen=True, slots=True)
class TelemetryState:
    """State of a reporter, without the columns of an unfinished round."""

    rolling: tuple[float, ...]  # mean accuracies of the last rounds
    monitors: dict[str, Json]


class Reporter:
    """Events, records and summaries of one run; `writer` hands them to its sinks.

    Args:
        setup, sinks: of the scheduler.
        demonstrated: rounds at the start in which another policy acts.
        siblings: consecutive envs that play the same world.
    """

    def __init__(
        self, setup: Setup, sinks: Sequence[AnySink], *, demonstrated: int = 0, siblings: int = 1
    ) -> None:
        self._facts = build_facts(setup)
        self._spec = setup.spec.telemetry
        self._exchange = setup.exchange
        self.writer = LogWriter(sinks, self._spec)
        ppo = setup.spec.ppo
        kl_stop = KL_STOP_FACTOR * (ppo.target_kl or 0.0)
        self._monitors = build_monitors(
            RunPlan(
                self._facts,
                self._spec,
                setup.spec.rounds,
                setup.net.macs(),
                kl_stop=kl_stop,
                imitated=demonstrated,
                siblings=siblings,
            )
        )
        self._records: list[Record] = []  # of the epochs of this round so far
        self._rolling: tuple[float, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy after the last epoch; None before it, or where none was measured."""
        row = self._records[-1]["val_acc"] if self._records else np.zeros(0)
        known = row[np.isfinite(row)]
        return float(known.mean()) if known.size else None

    def emit(self, *events: Event, round: int | None = None) -> None:
        """Emit events about the run or a round."""
        self.writer.emit([Envelope(event, round=round) for event in events])

    def add_record(self, record: Record) -> None:
        """Take in the record of the next epoch."""
        self._records.append(record)

    def gather(self) -> dict[str, Array]:
        """Return the columns of all envs at the end of a round, [T, E, ...]; every process then
        sums them up alike.
        """
        return self._exchange.join("record", self._stack(), axis=1)

    def end_round(
        self, round: int, columns: Columns, metrics: Mapping[str, Any], costs: RoundCosts
    ) -> BatchSummary:
        """Emit the events of a round after its last record; return its summary.

        columns: of `gather`; metrics: of the `update` transfer.
        """
        columns = derive_columns(columns)
        ends = episode_ends(columns, slot_history(columns), self._facts)
        record = RoundRecord(self._facts, round, columns, ends)
        trained = "steps_done" in metrics
        before = self._rolling
        update = (ppo_event(metrics, update_s=costs.update_s),) if trained else ()
        summary, self._rolling = summarise(
            ends,
            before,
            round=round,
            updated=trained and bool(metrics["steps_done"] > 0),
            costs=costs,
        )
        finished = FinishedRound(record, summary, before, metrics, costs.memory)
        found = [
            event for monitor in self._monitors.values() for event in monitor.end_round(finished)
        ]
        anomalies = [
            event.data.kind
            for event in found
            if isinstance(event.data, AnomalyDetected) and event.severity != "info"
        ]
        summary = replace(summary, anomalies=tuple(dict.fromkeys(anomalies)))
        events = (*update, summary, *throughput_events(costs, samples=self._facts.samples))
        self.writer.emit((*(Envelope(event, round=round) for event in events), *found), record)
        self._records = []
        return summary

    def state(self) -> TelemetryState:
        """Return the state between two epochs for a checkpoint, without `columns`."""
        monitors = {name: deepcopy(monitor.state) for name, monitor in self._monitors.items()}
        return TelemetryState(self._rolling, monitors)

    def columns(self) -> dict[str, Tensor]:
        """Return the columns of the unfinished round, [t, E, ...], of the envs in this process."""
        return {name: torch.from_numpy(column) for name, column in self._stack().items()}

    def _stack(self) -> dict[str, Array]:
        """Return the columns of the round, [t, E, ...]."""
        last = self._records[-1] if self._records else {}
        return {name: np.stack([record[name] for record in self._records]) for name in last}

    def restore(self, state: TelemetryState, columns: Mapping[str, Tensor], epoch: int) -> None:
        """Restore the state and the columns of a reporter of the same run before an epoch.

        Raises: CheckpointError for columns of another shape.
        """
        self._rolling = state.rolling
        for name, monitor in self._monitors.items():
            monitor.state = deepcopy(state.monitors.get(name, monitor.state))
        shape = (epoch, len(self._exchange.own(self._facts.envs)))
        for name, column in columns.items():
            if column.shape[:2] != shape:
                raise CheckpointError(
                    f"columns.{name}: expected [{shape[0]}, {shape[1]}, ...], got "
                    f"{list(column.shape)}"
                )
        self._records = [
            {name: np.asarray(column[t]) for name, column in columns.items()} for t in range(epoch)
        ]

    def close(self, *final_events: Event) -> Losses:
        """Emit the final events, wait until all events are written, and return the losses."""
        return self.writer.close(*final_events)


# Part of an epoch -> leaves of the record, each with the leaf of the part if that has another name.
_RECORDED = {
    "before.signals": "loss_before=val_loss, acc_before=val_acc",
    "before.slots": "stage_before=stage",
    "before.instance": ", ".join(
        ["regime, view_code, classes", *(f"instance_{name}={name}" for name in INSTANCE_PARAMETERS)]
    ),
    "inputs": "missed",
    "inputs.observation": "observation_finite=finite",
    "inputs.masks": ", ".join(f"{head}_legal={head}" for head in HEADS),
    "choice": "action, forced, op_prob, log_prob, entropy, value",
    "step.outcome": "op_effective=effective_op, outcome, reason, success=executed, target, "
    "action_gate=gate, action_gate_failed=gate_failed",
    "step.ticks": "tick_gate=gate, tick_removal=removal",
    # of removed seeds too
    "step.acted.slots": "stage_acted=stage, blueprint, algorithm, tempo, blend_target",
    "step.ticked.slots": "stage_ticked=stage, age, epochs_in_stage",
    "step.metrics": "train_loss=loss, train_acc=accuracy, train_valid=valid, skipped, "
    "overflowed, seed_skipped, host_gradient_norm",
    "step.validation": "val_loss=loss",
    "step": "host_params, params=seed_params",
    "step.measured": "val_acc, committed_acc, host_acc, clean_improvement, measured, exact, "
    "acc_table, contribution, contribution_valid, shapley, interaction_sum, boost_received, "
    "interaction_valid, forwards",
    "step.report": "rolled_back, panic, anomaly, snapshot_epoch, snapshot_taken, seeds_pruned, "
    "loss_limit=limit, panic_streak=streak",
    "step.score": "reward, components, network_value, param_cost, potential, potential_by_slot, "
    "unmeasured, detectors, detector_ratio, fossil_params, live_params",
    "after.slots": "stage, alpha, gradient_norm, gradient_health, gradient_ratio, gradient_valid, "
    "gradient_ratio_valid, vanishing, exploding, velocity, velocity_valid, since_measured",
    "after.scaling": "loss_scale",
    "after.signals": "stabilized, stable_epochs=stable, final_acc=val_acc, "
    "final_committed=committed_acc, "
    "final_loss=val_loss, best_acc",
}
_LEAVES = [(attrgetter(path), name_map(names)) for path, names in _RECORDED.items()]


def build_record(epoch: Epoch) -> TensorDict:
    """Build the record, flat, all leaves [E, ...]; `log.derived_columns` adds derived
    columns.
    """
    parts = [(part_of(epoch), names) for part_of, names in _LEAVES]
    leaves = {name: getattr(part, leaf) for part, names in parts for name, leaf in names.items()}
    return unsafe_tensordict(epoch.before, leaves)


def send_record(transfers: Transfers, record: TensorDict, slot: int) -> None:
    """Start the copy of a record to the host, where integers are narrow."""
    leaves = get_leaves(record)
    wide = [name for name, leaf in leaves.items() if leaf.dtype == torch.int64]
    transfers.send("record", leaves, slot, dict.fromkeys(wide, torch.int32))
