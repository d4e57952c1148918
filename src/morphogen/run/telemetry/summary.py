"""A round in numbers, from its completed episodes."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from morphogen.run.telemetry.events import BatchSummary, Envelope, EpisodeCompleted

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


def completed(events: Sequence[Envelope]) -> tuple[EpisodeCompleted, ...]:
    """The episodes among events, in the order of the envs."""
    return tuple(event.data for event in events if isinstance(event.data, EpisodeCompleted))


def summarise(
    episodes: Sequence[EpisodeCompleted],
    rolling: Sequence[float],
    *,
    round: int,
    updated: bool,
    seconds: float,
    env_epochs: int,
    anomalies: Sequence[str] = (),
    compiling: Compiling = NOTHING,
) -> tuple[BatchSummary, tuple[float, ...]]:
    """The summary of a round, and the mean accuracies of the last at most 10 rounds for the next one."""
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
        seconds=seconds,
        env_epochs_per_s=env_epochs / seconds if seconds > 0 else 0.0,
        **compiling._asdict(),
        **_spread(accuracy),
        **_means(episodes),
        **_totals(episodes),
    )
    return summary, rolling


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
