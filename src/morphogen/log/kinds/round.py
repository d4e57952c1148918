"""Events about a round: its summary, its actions and rewards, its cost and anomalies."""

from dataclasses import field
from typing import Literal

from typing_extensions import TypedDict

from morphogen.log.events import Count, Real, RealRow, RoundEvent


class BatchSummary(RoundEvent, name="RoundCompleted"):
    """Results of one round in numbers; means are over all envs, final values belong to the last
    epoch.

    `TrainResult.history` holds one per round; in the event file it is the event `RoundCompleted`.
    None: not measured, or not finite.
    """

    round: Count
    """From 0."""
    episodes_completed: Count
    accuracy_mean: float
    """Percent, like every accuracy."""
    accuracy_std: float
    accuracy_min: float
    accuracy_max: float
    committed_mean: float
    """Accuracy of the delivered networks: hosts and fossilized seeds."""
    loss_mean: Real
    """On the validation samples, nats."""
    rolling_accuracy: float
    """Mean of accuracy_mean over the last at most 10 rounds."""
    reward_mean: Real
    """Sum of an episode's rewards."""
    reward_std: Real
    return_mean: Real
    """Discounted."""
    network_value_mean: Real
    """Committed accuracy as a share of 1, minus the price of the parameters."""
    params_ratio_mean: float
    """Parameters of the delivered network over parameters of the host."""
    stability_mean: float
    """In (0, 1], 1 where the accuracy moved evenly."""
    germinated: Count
    """Seeds, sums over all envs."""
    fossilized: Count
    contributing: Count
    """Fossils worth at least a point when last measured."""
    pruned: Count
    live: Count
    """Neither fossilized nor pruned at the end."""
    rollbacks: Count
    success_share: float
    """Of the envs whose committed accuracy reached `TaskSpec.success`."""
    env_accuracy: tuple[float, ...]
    env_committed: tuple[float, ...]
    env_reward: RealRow
    updated: bool
    """The policy made at least one optimiser step."""
    anomalies: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    """Of the rollout."""
    env_epochs_per_s: Real = field(default=None, compare=False)
    graphs: Count = 0
    """Compiled in this round."""
    graph_fallbacks: Count = 0
    """Loops of this round that no graph could hold (`engine.capture`)."""


class Throughput(RoundEvent):
    """Speed of a round; the time of compiling graphs is in none of the other times."""

    env_epochs_per_s: Real
    samples_per_s: Real  # that hosts were trained on
    host_wait_time_share: Real  # waiting in fences
    # phase `data`: drawing minibatches and fetching streamed images; not gathering
    data_wait_time_share: Real
    rollout_s: Real
    update_s: Real
    compile_s: Real


class PhaseTimes(TypedDict):
    """Time of a phase."""

    wall_s: Real
    host_cpu_s: Real  # of the thread that runs the scheduler
    device_s: Real  # None on a CPU
    count: Count  # how often it was entered


class PhaseProfile(RoundEvent):
    """Times of the phases of a round."""

    phases: dict[str, PhaseTimes]


class MemoryUsed(RoundEvent):
    """Memory of the allocator of a CUDA device, peaks since the process began."""

    device: str
    allocated_bytes: Count
    reserved_bytes: Count
    peak_bytes: Count
    total_bytes: Count
    retries: Count
    ooms: Count


Trend = Literal["plateau", "degradation", "improvement"]


class TrendDetected(RoundEvent):
    """Direction of the rolling accuracy."""

    kind: Trend
    rolling_accuracy: Real
    previous: Real
    delta: Real


class PerformanceDropped(RoundEvent, severity="warning"):
    """A round was far below the rounds before it."""

    accuracy: Real
    rolling_accuracy: Real  # without this round
    drop: Real  # as a share of it


class AnomalyDetected(RoundEvent, severity="warning"):
    """A rule fired; its envelope says how severe it is, and in which epoch, env and slot where it
    is about one.
    """

    kind: str
    value: Real
    limit: Real
    subject: str | None  # head, component, device, ...
    streak: Count
