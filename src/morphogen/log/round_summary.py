"""A round in numbers: ends of its episodes and their summary, actions, masks and rewards, metrics
of the update.

Sums run over the epochs in order, as sums kept epoch by epoch would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np

from morphogen.log.codec import Array
from morphogen.log.events import Json, RoundEvent, mean_known, tidy
from morphogen.log.kinds import round as kinds
from morphogen.log.round_record import (
    HEAD_USED,
    Columns,
    Record,
    RunFacts,
    in_stages,
    stage_entries,
)
from morphogen.vocab.action import Head, Op
from morphogen.vocab.objective import DELIVERED
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage
from morphogen.vocab.text import name_map

ROLLING_ROUNDS = 10
STABILITY_EPOCHS = 20  # differences of accuracy that stability looks at
CONTRIBUTING_POINTS = 1.0  # points of contribution from which a fossil counts as contributing


class CompileStats(NamedTuple):
    """Counts of graphs, and of fallbacks."""

    graphs: int = 0
    graph_fallbacks: int = 0  # loops that no graph could hold (`engine.capture`)
    compile_s: float = 0.0

    def difference(self, before: "CompileStats") -> "CompileStats":
        """Return the difference of two counts."""
        return CompileStats(
            self.graphs - before.graphs,
            self.graph_fallbacks - before.graph_fallbacks,
            self.compile_s - before.compile_s,
        )


NO_COMPILES = CompileStats()


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Costs of a round.  The time of compiling graphs is in none of the other times."""

    rollout_s: float
    env_epochs: int  # of the rollout
    update_s: float = 0.0
    waited_s: float = 0.0  # host, in fences
    compile_stats: CompileStats = NO_COMPILES
    # phase -> wall_s, host_cpu_s, device_s, count; empty: not measured
    phases: Json = field(default_factory=dict)
    memory: tuple[Json, ...] = ()  # of each CUDA device


def summarise(
    ends: Record,
    rolling: Sequence[float],
    *,
    round: int,
    updated: bool,
    costs: RoundCosts,
) -> tuple[kinds.BatchSummary, tuple[float, ...]]:
    """The summary of a round from the ends of its episodes, and the mean accuracies of the last
    rounds for the next.
    """
    if not len(ends["accuracy"]):
        raise ValueError("a round without completed episodes has no summary")
    row = {name: tidy(ends[name]) for name in _MEANS}  # as events hold them
    accuracy, committed, reward = (
        row[name] for name in ("accuracy", "committed_accuracy", "reward")
    )
    rolling = (*rolling, fmean(accuracy))[-ROLLING_ROUNDS:]
    summary = kinds.BatchSummary(
        round=round,
        episodes_completed=len(accuracy),
        rolling_accuracy=fmean(rolling),
        reward_std=pstdev(known)
        if (known := [value for value in reward if value is not None])
        else None,
        env_accuracy=accuracy,
        env_committed=committed,
        env_reward=reward,
        updated=updated,
        seconds=costs.rollout_s,
        env_epochs_per_s=_epoch_rate(costs),
        graphs=costs.compile_stats.graphs,
        graph_fallbacks=costs.compile_stats.graph_fallbacks,
        accuracy_std=pstdev(accuracy),
        accuracy_min=min(accuracy),
        accuracy_max=max(accuracy),
        success_share=fmean(ends["success"].tolist()),
        **{field: mean_known(row[name]) for name, field in _MEANS.items()},
        **{name: ends[name].sum() for name in _TOTALS},
    )
    return summary, rolling


_MEANS = name_map(  # end of an episode -> its mean in the summary
    "accuracy=accuracy_mean, committed_accuracy=committed_mean, loss=loss_mean, "
    "reward=reward_mean, discounted_return=return_mean, network_value=network_value_mean, "
    "params_ratio=params_ratio_mean, stability=stability_mean"
)
_TOTALS = ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks")


def throughput_events(costs: RoundCosts, *, samples: int) -> tuple[RoundEvent, ...]:
    """Speed and costs of a round; samples: of an env and epoch."""
    rate = _epoch_rate(costs)
    wall = costs.rollout_s + costs.update_s
    data = costs.phases["data"]["wall_s"] if "data" in costs.phases else None
    throughput = kinds.Throughput(
        env_epochs_per_s=rate,
        samples_per_s=None if rate is None else rate * samples,
        host_wait_time_share=_time_share(costs.waited_s, wall),
        data_wait_time_share=_time_share(data, wall),
        rollout_s=costs.rollout_s,
        update_s=costs.update_s,
        compile_s=costs.compile_stats.compile_s,
    )
    profile = (kinds.PhaseProfile(phases=costs.phases),) if costs.phases else ()
    return (throughput, *profile, *(kinds.MemoryUsed(**device) for device in costs.memory))


def _epoch_rate(costs: RoundCosts) -> float | None:
    return costs.env_epochs / costs.rollout_s if costs.rollout_s > 0 else None


def _time_share(seconds: float | None, wall: float) -> float | None:
    return None if seconds is None or wall <= 0 else seconds / wall


def _total(values: Array) -> Array:
    """Sum over the epochs in their order, float64."""
    return np.cumsum(values, axis=0, dtype=np.float64)[-1]


def delivered_params(record: Record) -> Array:
    """Parameters of the host with the seeds that are blended in, int64 [..., E]."""
    blended = in_stages(record["stage"], BLENDED)
    return record["host_params"] + np.where(blended, record["params"], 0).sum(axis=-1)


def stability(accuracies: Array) -> float:
    """`1 / (1 + variance)` of the differences between accuracies in order; NaN = no epoch; 1 below
    two of them.
    """
    steps = np.diff(accuracies[~np.isnan(accuracies)])
    return float(1.0 / (1.0 + steps.var())) if steps.size > 1 else 1.0


def running_value(rows: Array, objective: str) -> Array:
    """Value of an episode up to each epoch, by the objective of the task.

    Shapes: rows float [T, ...], `StepScore.network_value` of the epochs -> [T, ...]; the last row
    is its value at the end.
    """
    if objective == DELIVERED:
        return rows
    epochs = np.arange(1, len(rows) + 1).reshape(-1, *(1,) * (rows.ndim - 1))
    return (rows.astype(np.float64).cumsum(axis=0) / epochs).astype(rows.dtype)


def episode_ends(columns: Columns, history: Columns, facts: RunFacts) -> dict[str, Array]:
    """Results of the episodes, arrays [E, ...]; sums are float64.

    After a rollback in the last epoch, accuracies and rewards belong to the restored state.
    """
    last = {name: column[-1] for name, column in columns.items()}
    fossil = last["stage"] == Stage.FOSSILIZED
    reward = columns["reward"].astype(np.float64)
    contributes = history["contribution_valid"][-1] & (
        history["contribution"][-1] >= CONTRIBUTING_POINTS
    )
    recent = columns["val_acc"][-STABILITY_EPOCHS - 1 :].astype(np.float64)
    discounts = np.array([facts.gamma**epoch for epoch in range(len(reward))])
    sums = {
        "germinated": stage_entries(columns, Stage.GERMINATED),
        "fossilized": stage_entries(columns, Stage.FOSSILIZED),
        "pruned": stage_entries(columns, Stage.PRUNED),
        "rollbacks": columns["rolled_back"][..., None],
        "unmeasured_steps": columns["unmeasured"][..., None],
    }
    return {
        "accuracy": last["final_acc"],
        "committed_accuracy": last["final_committed"],
        "initial_accuracy": columns["acc_before"][0],
        "best_accuracy": last["best_acc"],
        "loss": last["final_loss"],
        "success": last["final_committed"] >= facts.success_accuracy,
        "stability": np.array([stability(row) for row in recent.T]),
        "reward": _total(reward),
        "discounted_return": _total(discounts[:, None] * reward),
        "network_value": running_value(columns["network_value"], facts.objective)[-1],
        "components": _total(columns["components"]),
        "detectors": columns["detectors"].sum(axis=(0, 2), dtype=np.int32),
        "params": delivered_params(last).astype(np.int32),
        "params_ratio": delivered_params(last) / last["host_params"],
        "contributing": (fossil & contributes).sum(axis=1, dtype=np.int32),
        "live": (in_stages(last["stage"], OCCUPIED) & ~fossil).sum(axis=1, dtype=np.int32),
        **{name: hits.sum(axis=(0, 2), dtype=np.int32) for name, hits in sums.items()},
        "ops": (columns["op_effective"][..., None] == np.arange(len(Op))).sum(
            axis=0, dtype=np.int32
        ),
        "instance": last["instance"],
    }


def used_heads(op: Array) -> Array:
    """Return which heads an op uses: int [...] -> bool [..., 8]."""
    return HEAD_USED[np.clip(op, 0, len(Op) - 1)]


def legal_choices(columns: Columns) -> Array:
    """Number of legal values of each head once the op is chosen; 0 for heads that the op does not
    use: int [..., 8].
    """
    op = columns["action"][..., Head.OP]
    own = np.clip(op, 0, len(Op) - 1)[..., None, None]
    masks = {head: columns[f"{head.label}_legal"] for head in Head}
    masks[Head.SLOT] = np.take_along_axis(masks[Head.SLOT], own, axis=-2)[..., 0, :]
    return np.where(
        used_heads(op), np.stack([masks[head].sum(axis=-1) for head in Head], axis=-1), 0
    )
