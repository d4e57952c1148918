"""A round in numbers, from its completed episodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from morphogen.telemetry.events import Json, RoundEvent
from morphogen.telemetry.kinds.env import EpisodeCompleted
from morphogen.telemetry.kinds.round import BatchSummary, MemoryUsed, PhaseProfile, Throughput

ROLLING_ROUNDS = 10


class CompileStats(NamedTuple):
    """Counts of compiled graphs, and of fallbacks."""

    graphs: int = 0
    graph_fallbacks: int = 0  # epochs and resets that ran eager
    compile_s: float = 0.0

    def difference(self, before: "CompileStats") -> "CompileStats":
        """Return the difference of two counts."""
        return CompileStats(*(now - then for now, then in zip(self, before, strict=True)))


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
    episodes: Sequence[EpisodeCompleted],
    rolling: Sequence[float],
    *,
    round: int,
    updated: bool,
    costs: RoundCosts,
    anomalies: Sequence[str] = (),
) -> tuple[BatchSummary, tuple[float, ...]]:
    """The summary of a round, and the mean accuracies of the last at most 10 rounds for the next one."""
    if not episodes:
        raise ValueError("a round without completed episodes has no summary")
    accuracy = [one.accuracy for one in episodes]
    reward = [one.reward for one in episodes]
    rolling = (*rolling, fmean(accuracy))[-ROLLING_ROUNDS:]
    summary = BatchSummary(
        round=round,
        episodes_completed=len(episodes),
        rolling_accuracy=fmean(rolling),
        reward_mean=_mean(reward),
        reward_std=pstdev(_known_values(reward)) if _known_values(reward) else None,
        env_accuracy=tuple(accuracy),
        env_committed=tuple(one.committed_accuracy for one in episodes),
        env_reward=tuple(reward),
        updated=updated,
        anomalies=tuple(anomalies),
        seconds=costs.rollout_s,
        env_epochs_per_s=_epoch_rate(costs),
        graphs=costs.compile_stats.graphs,
        graph_fallbacks=costs.compile_stats.graph_fallbacks,
        **_accuracy_stats(accuracy),
        **_means(episodes),
        **_totals(episodes),
    )
    return summary, rolling


def throughput_events(costs: RoundCosts, *, samples: int) -> tuple[RoundEvent, ...]:
    """Speed and costs of a round; samples: of an env and epoch."""
    rate, wall = _epoch_rate(costs), costs.rollout_s + costs.update_s
    data = costs.phases["data"]["wall_s"] if "data" in costs.phases else None
    throughput = Throughput(
        env_epochs_per_s=rate,
        samples_per_s=None if rate is None else rate * samples,
        host_wait_time_share=_time_share(costs.waited_s, wall),
        data_wait_time_share=_time_share(data, wall),
        rollout_s=costs.rollout_s,
        update_s=costs.update_s,
        compile_s=costs.compile_stats.compile_s,
    )
    profile = (PhaseProfile(phases=costs.phases),) if costs.phases else ()
    return (throughput, *profile, *(MemoryUsed(**one) for one in costs.memory))


def _epoch_rate(costs: RoundCosts) -> float | None:
    return costs.env_epochs / costs.rollout_s if costs.rollout_s > 0 else None


def _time_share(seconds: float | None, wall: float) -> float | None:
    return None if seconds is None or wall <= 0 else seconds / wall


def _known_values(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known_values(values)
    return fmean(known) if known else None


def _accuracy_stats(accuracy: Sequence[float]) -> dict[str, float]:
    return {
        "accuracy_mean": fmean(accuracy),
        "accuracy_std": pstdev(accuracy),
        "accuracy_min": min(accuracy),
        "accuracy_max": max(accuracy),
    }


def _means(episodes: Sequence[EpisodeCompleted]) -> dict[str, Any]:
    return {
        "loss_mean": _mean(one.loss for one in episodes),
        "return_mean": _mean(one.discounted_return for one in episodes),
        "network_value_mean": _mean(one.network_value for one in episodes),
        "committed_mean": fmean(one.committed_accuracy for one in episodes),
        "params_ratio_mean": fmean(one.params_ratio for one in episodes),
        "stability_mean": fmean(one.stability for one in episodes),
        "success_share": fmean(one.success for one in episodes),
    }


def _totals(episodes: Sequence[EpisodeCompleted]) -> dict[str, int]:
    names = ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks")
    return {name: sum(getattr(one, name) for one in episodes) for name in names}
