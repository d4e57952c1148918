"""A round in numbers, from its completed episodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from morphogen.run.telemetry.events import BatchSummary, Envelope, EpisodeCompleted, Json

ROLLING_ROUNDS = 10


class Compiling(NamedTuple):
    """What was compiled, and what could not be."""

    graphs: int = 0
    graph_fallbacks: int = 0  # epochs and resets that ran eager
    compile_s: float = 0.0

    def since(self, before: "Compiling") -> "Compiling":
        """What came on top."""
        return Compiling(*(now - then for now, then in zip(self, before, strict=True)))


NOTHING = Compiling()


@dataclass(frozen=True, slots=True)
class Costs:
    """What a round took.  The time of making graphs is in none of the other times."""

    rollout_s: float
    update_s: float = 0.0
    waited_s: float = 0.0  # host, in fences
    compiling: Compiling = NOTHING
    phases: Json = field(default_factory=dict)  # phase -> wall_s, host_cpu_s, device_s, count; empty: not measured
    memory: tuple[Json, ...] = ()  # of each CUDA device

    def shares(self) -> dict[str, float | None]:
        """What the host waited for, as shares of the wall time; None = not measured."""
        wall = self.rollout_s + self.update_s
        data = self.phases["data"]["wall_s"] if "data" in self.phases else None
        seconds = {"host_wait_time_share": self.waited_s, "data_wait_time_share": data}
        return {name: None if one is None or wall <= 0 else one / wall for name, one in seconds.items()}


def completed(events: Sequence[Envelope]) -> tuple[EpisodeCompleted, ...]:
    """The episodes among events, in the order of the envs."""
    return tuple(event.data for event in events if isinstance(event.data, EpisodeCompleted))


def summarise(
    episodes: Sequence[EpisodeCompleted],
    rolling: Sequence[float],
    *,
    round: int,
    updated: bool,
    costs: Costs,
    env_epochs: int,
    samples: int,
    anomalies: Sequence[str] = (),
) -> tuple[BatchSummary, tuple[float, ...]]:
    """The summary of a round, and the mean accuracies of the last at most 10 rounds for the next one.

    env_epochs: of the round; samples: of an env and epoch.
    """
    if not episodes:
        raise ValueError("a round without completed episodes has no summary")
    accuracy = [one.accuracy for one in episodes]
    reward = [one.reward for one in episodes]
    losses = [one.loss for one in episodes if one.loss is not None]
    rolling = (*rolling, fmean(accuracy))[-ROLLING_ROUNDS:]
    summary = BatchSummary(
        round=round,
        episodes_completed=len(episodes),
        loss_mean=fmean(losses) if losses else None,
        rolling_accuracy=fmean(rolling),
        reward_mean=fmean(reward),
        reward_std=pstdev(reward),
        env_accuracy=tuple(accuracy),
        env_committed=tuple(one.committed_accuracy for one in episodes),
        env_reward=tuple(reward),
        updated=updated,
        anomalies=tuple(anomalies),
        **_paces(costs, env_epochs, samples),
        **_spread(accuracy),
        **_means(episodes),
        **_totals(episodes),
    )
    return summary, rolling


def _paces(costs: Costs, env_epochs: int, samples: int) -> dict[str, Any]:
    rate = env_epochs / costs.rollout_s if costs.rollout_s > 0 else 0.0
    return {
        "seconds": costs.rollout_s,
        "update_s": costs.update_s,
        "env_epochs_per_s": rate,
        "samples_per_s": rate * samples,
        "phases": costs.phases,
        "memory": costs.memory,
        **costs.shares(),
        **costs.compiling._asdict(),
    }


def _spread(accuracy: Sequence[float]) -> dict[str, float]:
    return {
        "accuracy_mean": fmean(accuracy),
        "accuracy_std": pstdev(accuracy),
        "accuracy_min": min(accuracy),
        "accuracy_max": max(accuracy),
    }


def _means(episodes: Sequence[EpisodeCompleted]) -> dict[str, float]:
    return {
        "committed_mean": fmean(one.committed_accuracy for one in episodes),
        "return_mean": fmean(one.discounted_return for one in episodes),
        "network_value_mean": fmean(one.network_value for one in episodes),
        "params_ratio_mean": fmean(one.params_ratio for one in episodes),
        "stability_mean": fmean(one.stability for one in episodes),
        "success_share": fmean(one.success for one in episodes),
    }


def _totals(episodes: Sequence[EpisodeCompleted]) -> dict[str, int]:
    names = ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks")
    return {name: sum(getattr(one, name) for one in episodes) for name in names}
