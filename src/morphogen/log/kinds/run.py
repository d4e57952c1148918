"""Events about the run: its start and end, checkpoints, evaluations, sinks that failed."""

from typing import Literal

from typing_extensions import TypedDict

from morphogen.log.events import Count, Json, Real, RunEvent


class Interval(TypedDict):
    """A mean and its 95 % interval."""

    mean: Real
    low: Real
    high: Real


class SkippedCheckpoint(TypedDict):
    """A checkpoint that was passed over."""

    checkpoint: str
    reason: str


class RunStarted(RunEvent):
    """Set-up is done."""

    run_id: str
    command: str
    task: str
    preset: str | None
    config: Json
    config_sha256: str
    data_sha256: str
    data_placement: Literal["resident", "streamed"]
    seed: Count
    envs: Count
    slots: tuple[str, ...]
    blueprints: tuple[str, ...]  # name of every code
    # multiply-accumulates for one sample: of the host, and of seeds by blueprint and slot
    macs: Json
    rounds: Count
    epochs: Count
    minibatches: Count
    batch: Count
    world: Count  # processes
    devices: tuple[str, ...]
    precision: str  # float32, bfloat16 or float16, of the features of hosts and seeds
    compile: str  # mode
    host_params: Count
    obs_dim: Count
    policy_params: Count
    versions: Json


class RunResumed(RunEvent):
    """A checkpoint was loaded; the run resumes from it."""

    checkpoint: str
    cut_bytes: Count  # of the event file, which was ahead of the checkpoint
    skipped: tuple[SkippedCheckpoint, ...]  # newer ones
    rounds: Count  # of the complete run, from here on


class CheckpointSaved(RunEvent):
    """A checkpoint is complete."""

    path: str
    kind: Literal["periodic", "final", "stop"]
    size_bytes: Count
    save_s: Real


class CheckpointFailed(RunEvent, severity="error"):
    """A checkpoint could not be written."""

    path: str
    error: str


class Evaluated(RunEvent):
    """The frozen policy was judged on held-out instances."""

    episodes: Count
    split: Literal["validation", "test"]
    network_value: Interval
    committed_accuracy: Interval
    params_ratio: Interval
    success_share: Interval
    stability: Interval


class NetworksFailed(RunEvent, severity="warning"):
    """Networks of the final evaluation could not be kept."""

    error: str


class HeldOutPlayed(RunEvent):
    """A policy played the held-out instances of the learning curve; a rival plays them once."""

    policy: str
    rounds: Count  # that the policy had learned for
    network_value: tuple[Real, ...]  # per instance, the same for every play of the run
    score: tuple[Real, ...] = ()  # of the delivered networks, in percent
    params: tuple[Count, ...] = ()  # of the same, with the host


class RunCompleted(RunEvent):
    """The last event of a run."""

    status: Literal["completed", "stopped", "failed"]
    rounds_done: Count
    best_round: Count | None
    best_accuracy: Real
    error: str | None
    run_s: Real
    graphs: Count = 0  # compiled in this run
    graph_fallbacks: Count = 0  # loops of this run that no graph could hold (`engine.capture`)


class SinkFailed(RunEvent, severity="warning"):
    """A sink raised and gets no more events."""

    sink: str
    error: str
