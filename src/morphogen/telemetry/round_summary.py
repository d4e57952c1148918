"""A round in numbers: its summary from completed episodes, its tally, and the metrics of the update."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np

from morphogen.storage.codec import Array
from morphogen.telemetry.events import Json, RoundEvent, mean_known, tidy
from morphogen.telemetry.kinds import round as kinds
from morphogen.telemetry.round_record import Columns, Record, RunFacts
from morphogen.telemetry.round_sums import action_counts, mask_hit_rates, reward_summary
from morphogen.vocab.text import name_map

ROLLING_ROUNDS = 10


class CompileStats(NamedTuple):
    """Counts of graphs, and of fallbacks."""

    graphs: int = 0
    graph_fallbacks: int = 0  # loops that no graph could hold (`engine.capture`)
    compile_s: float = 0.0

    def difference(self, before: "CompileStats") -> "CompileStats":
        """Return the difference of two counts."""
        graphs, fallbacks = self.graphs - before.graphs, self.graph_fallbacks - before.graph_fallbacks
        return CompileStats(graphs, fallbacks, self.compile_s - before.compile_s)


NO_COMPILES = CompileStats()


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Costs of a round.  The time of compiling graphs is in none of the other times."""

    rollout_s: float
    env_epochs: int  # of the rollout
    update_s: float = 0.0
    waited_s: float = 0.0  # host, in fences
    compile_stats: CompileStats = NO_COMPILES
    phases: Json = field(default_factory=dict)  # phase -> wall_s, host_cpu_s, device_s, count; empty: not measured
    memory: tuple[Json, ...] = ()  # of each CUDA device


def summarise(
    ends: Record,
    rolling: Sequence[float],
    *,
    round: int,
    updated: bool,
    costs: RoundCosts,
    anomalies: Sequence[str] = (),
) -> tuple[kinds.BatchSummary, tuple[float, ...]]:
    """The summary of a round from the ends of its episodes, and the mean accuracies of the last rounds for the next."""
    if not len(ends["accuracy"]):
        raise ValueError("a round without completed episodes has no summary")
    row = {name: tidy(ends[name]) for name in _MEANS}  # as events hold them
    accuracy, committed, reward = (row[name] for name in ("accuracy", "committed_accuracy", "reward"))
    rolling = (*rolling, fmean(accuracy))[-ROLLING_ROUNDS:]
    summary = kinds.BatchSummary(
        round=round,
        episodes_completed=len(accuracy),
        rolling_accuracy=fmean(rolling),
        reward_std=pstdev(known) if (known := [value for value in reward if value is not None]) else None,
        env_accuracy=accuracy,
        env_committed=committed,
        env_reward=reward,
        updated=updated,
        anomalies=tuple(anomalies),
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
    "accuracy=accuracy_mean, committed_accuracy=committed_mean, loss=loss_mean, reward=reward_mean, "
    "discounted_return=return_mean, network_value=network_value_mean, params_ratio=params_ratio_mean, "
    "stability=stability_mean"
)
_TOTALS = ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks")


def throughput_events(costs: RoundCosts, *, samples: int) -> tuple[RoundEvent, ...]:
    """Speed and costs of a round; samples: of an env and epoch."""
    rate, wall = _epoch_rate(costs), costs.rollout_s + costs.update_s
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


Metrics = Mapping[str, Any]  # flat names, and flags `<name>_valid` beside those that may be missing
Scale = tuple[Array, Array]  # mean and standard deviation of every feature that the policy normalises


def round_events(columns: Columns, metrics: Metrics, first: Scale | None, facts: RunFacts) -> Iterator[RoundEvent]:
    """Actions, masks, rewards, observations, memory.  first: the scale after the first round of the run."""
    yield action_counts(columns, facts)
    yield mask_hit_rates(columns)
    yield reward_summary(columns, facts)
    drift = scale_drift(normaliser_scale(metrics), first)
    yield kinds.ObservationStats(**_event_fields("observation", metrics, kinds.ObservationStats), drift=drift)
    if "hidden.h_rms" in metrics:
        yield kinds.HiddenHealth(**_event_fields("hidden", metrics, kinds.HiddenHealth))


def normaliser_scale(metrics: Metrics) -> Scale | None:
    """Observation statistics of the policy after the round; None for a policy without them."""
    return (metrics["normaliser.mean"], metrics["normaliser.std"]) if "normaliser.mean" in metrics else None


def scale_drift(now: Scale | None, first: Scale | None) -> float | None:
    """Drift of the scale since the first round: mean distance of the means plus that of the deviations."""
    if now is None:
        return None
    return float(sum(np.abs(a - b).mean() for a, b in zip(now, now if first is None else first, strict=True)))


def _event_fields(group: str, metrics: Metrics, kind: type[RoundEvent]) -> dict[str, Any]:
    """The metrics of a group under the names of an event; None where one is missing or not valid."""
    keys = {name: f"{group}.{name}" for name in kind.__annotations__ if name != "drift"}
    valid = {key for key in keys.values() if key in metrics and metrics.get(f"{key}_valid", True)}
    return {name: tidy(metrics[key]) if key in valid else None for name, key in keys.items()}
