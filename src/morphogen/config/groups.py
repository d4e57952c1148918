"""The groups of a run's configuration: one frozen dataclass per subject, every field with default and range."""

import re
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from morphogen.config.fields import (
    BY_TASK,
    DEVICE,
    LEARNING,
    OUTPUT,
    SIZE,
    TASK,
    Count,
    FilePath,
    Names,
    Natural,
    NonNegative,
    Null,
    OneOf,
    OpenShare,
    Positive,
    PositiveShare,
    Share,
    Spec,
    option,
    spec,
)
from morphogen.config.legacy_reward_spec import LegacyRewardSpec
from morphogen.config.parts import DATASETS, HOSTS, NETWORKS, RULES
from morphogen.vocab.action import SIZES, Head
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.reward import LEGACY
from morphogen.vocab.text import format_value

COMPILE_OFF, COMPILE_DEFAULT, COMPILE_REDUCE_OVERHEAD = "off", "default", "reduce-overhead"  # of the compile modes
AUTO, RESIDENT, STREAMED = "auto", "resident", "streamed"  # place of the training split
CONTINUE, STOP = "continue", "stop"  # after a checkpoint that failed
_DEVICE_NAME = re.compile("auto|cpu|cuda|cuda:(0|[1-9][0-9]?)")  # torch keeps the index in 8 bits and wraps beyond


@spec
class DataSpec(Spec):
    """Place of the data, and the way in which it is served."""

    PATH: ClassVar[str] = "data"

    name: Annotated[str, OneOf(DATASETS), Null(BY_TASK)] = option(None, text="data set")
    dir: Annotated[FilePath | None, Null("$MORPHOGEN_DATA, else ./data")] = option(
        None, "--data-dir", "DIR", TASK, "folder of CIFAR (default $MORPHOGEN_DATA, else ./data)"
    )
    placement: Literal["auto", "resident", "streamed"] = option(
        AUTO,
        "--placement",
        "P",
        DEVICE,
        "training data on the device (resident) or read ahead from the host (streamed); default auto: by its size",
    )
    resident_limit_gib: Positive = option(4.0, text="size of all splits in GiB up to which placement auto is resident")
    prefetch: Annotated[int, Field(ge=1, le=64)] = option(3, text="minibatches read ahead of streamed data")
    batch: Annotated[int, Field(ge=1, le=65_536), Null(BY_TASK)] = option(
        None, "--batch", "N", SIZE, "samples per optimiser step of a host"
    )
    minibatches: Annotated[int, Field(ge=1, le=100_000), Null(BY_TASK)] = option(
        None, "--minibatches", "N", SIZE, "optimiser steps of a host per epoch"
    )
    val_samples: Annotated[Count | Literal["task"] | None, Null("all")] = option(
        "task", text="validation samples per epoch: a number, task = that of the task, null = all"
    )
    augment: bool = option(True, "--no-augment", "", TASK, "train on the images as they are")


@spec
class HostSpec(Spec):
    """The host networks and the optimiser that trains hosts and seeds."""

    PATH: ClassVar[str] = "host"

    lr: Annotated[float, Field(gt=0, le=10), Null(BY_TASK)] = option(None, text="learning rate of hosts")
    seed_lr: Annotated[float, Field(gt=0, le=10), Null(BY_TASK)] = option(None, text="learning rate of seeds")
    momentum: Annotated[float, Field(ge=0, lt=1)] = option(0.9, text="momentum of the optimiser of hosts and seeds")
    weight_decay: Share = option(5e-4, text="weight decay of hosts and seeds")
    max_grad_norm: Annotated[Positive | None, Null("no clipping")] = option(
        1.0, text="limit of the gradient norm of each host, and of each seed"
    )
    name: Annotated[str, OneOf(HOSTS), Null(BY_TASK)] = option(None, text="host network")
    norm: Literal["group", "batch"] = option(
        "group", text="normalisation layers of the host: over groups of channels, or over the batch"
    )
    width: Annotated[int, Field(ge=1, le=4_096), Null(BY_TASK)] = option(None, text="channels of the first block")


@spec
class LifecycleSpec(Spec):
    """Conditions for the moves of a seed: gates, cooling, pruning."""

    PATH: ClassVar[str] = "lifecycle"

    permissive_gates: bool = option(
        True, text="gates check little: times, health of gradients; false checks contributions and progress as well"
    )
    auto_forward: Annotated[tuple[str, ...], Names(among=tuple(gate.name for gate in AUTO_GATES))] = option(
        (), text="gates that a seed passes by itself as soon as it may"
    )
    min_prune_age: Natural = option(5, text="epochs since germination before which PRUNE is illegal")
    embargo_epochs: Count = option(5, text="epochs that a slot cools down after a seed was pruned")
    min_training_epochs: Natural = option(10, text="epochs in training before gate BLEND opens")
    min_blending_epochs: Natural = option(
        10, text="epochs in blending before gate HOLD opens, unless gates are permissive"
    )
    min_improvement: float = option(
        0.5, text="points of accuracy gained in training for gate BLEND, unless gates are permissive"
    )
    min_gradient_ratio: NonNegative = option(
        0.1, text="gradient norm over that of the host for gate BLEND, unless gates are permissive"
    )
    min_gradient_health: Share = option(
        0.7, text="health of the gradients of a seed, 0 to 1, for gate BLEND if gates are permissive"
    )
    min_contribution: float = option(1.0, text="points of contribution for gate FOSSILIZE, unless gates are permissive")
    vanishing: Positive = option(1e-7, text="gradient norm below which a tensor counts as vanishing")
    exploding: float = option(10.0, text="gradient norm above which a tensor counts as exploding")

    def cross_checks(self) -> list[str]:
        """The two gradient limits are in order."""
        if self.vanishing < self.exploding:
            return []
        return [f"lifecycle.exploding: expected > lifecycle.vanishing ({self.vanishing}), got {self.exploding}"]


@spec
class GovernorSpec(Spec):
    """Conditions for rolling an env back to its last healthy snapshot."""

    PATH: ClassVar[str] = "governor"

    enabled: bool = option(True, text="roll back envs that panic; false reports signs and rolls nothing back")
    sensitivity: Positive = option(6.0, text="standard deviations above the mean loss that are an anomaly")
    multiplier: Annotated[float, Field(ge=1)] = option(1.5, text="times the mean loss that are an anomaly")
    chance_band: OpenShare = option(
        0.065, text="distance from the loss of guessing, as its share, that counts as guessing"
    )
    good_below: OpenShare = option(
        0.6, text="mean loss, as a share of the loss of guessing, below which a return to guessing is a panic"
    )
    warmup_limit: Annotated[float, Field(gt=1)] = option(
        2.0, text="times the loss of guessing that are an anomaly before enough losses are known"
    )
    window: Annotated[int, Field(ge=2, le=10_000)] = option(
        20, text="normal losses that mean and deviation are computed from"
    )
    min_samples: Annotated[int, Field(ge=2, lt=2**63)] = option(
        10, text="normal losses before mean and deviation are used"
    )
    panics: Count = option(3, text="anomalous epochs in a row that are a panic")
    snapshot_every: Count = option(5, text="epochs between two snapshots of a healthy env")
    max_rollbacks: Annotated[Count | None, Null("no limit")] = option(
        None, text="rollbacks of an env in one episode, after which it is left alone"
    )

    def cross_checks(self) -> list[str]:
        """Bands and counts fit each other."""
        band = self.chance_band
        checks = {
            "good_below": (self.good_below < 1 - band, f"< 1 - governor.chance_band ({1 - band:g})"),
            "warmup_limit": (self.warmup_limit > 1 + band, f"> 1 + governor.chance_band ({1 + band:g})"),
            "window": (self.window >= self.min_samples, f">= governor.min_samples ({self.min_samples})"),
        }
        return [
            f"governor.{name}: expected {text}, got {getattr(self, name)}"
            for name, (valid, text) in checks.items()
            if not valid
        ]


@spec
class SignalSpec(Spec):
    """Limits from which a host counts as on a plateau, or as stable."""

    PATH: ClassVar[str] = "signal"

    plateau_points: NonNegative = option(0.5, text="points of accuracy per epoch below which a host is on a plateau")
    stable_gain: Positive = option(0.03, text="fall of the loss, as its share, below which an epoch is stable")
    stable_regression: Positive = option(
        0.05, text="rise of the loss, as its share, above which an epoch is not stable"
    )
    stable_epochs: Natural = option(
        3, text="stable epochs in a row after which a host counts as stable; 0 = from the reset on"
    )


@spec
class AttributionSpec(Spec):
    """Frequency and resolution of the measurement of contributions."""

    PATH: ClassVar[str] = "attribution"

    every: Count = option(1, text="epochs between two measurements of all contributions")
    permutation_pairs: Annotated[int, Field(ge=1, le=64)] = option(
        2, text="pairs of random orders that contributions are sampled from, with more than 4 live seeds"
    )


@spec
class RewardSpec(Spec):
    """Reward rule and its parameters."""

    PATH: ClassVar[str] = "reward"

    rule: Annotated[str, OneOf(RULES)] = option(
        "delta",
        "--reward",
        "RULE",
        LEARNING,
        f"reward of the policy: {', '.join(RULES.builtin())}, or another rule that `morphogen rewards` lists "
        "(default: value on digits, else delta)",
    )
    potential_scale: Annotated[float, Field(ge=0, le=2)] = option(
        1.0, text="weight of the potential that pays progress before it is delivered"
    )
    governor_penalty: Annotated[NonNegative, Null("1, legacy rules 10")] = option(None, text="penalty for a rollback")
    op_cost: Annotated[float, Field(ge=0, le=0.01)] = option(0.0, text="cost of an executed op other than WAIT")
    return_scale: Literal["running", "fixed"] = option(
        "running", text="divide rewards by a running scale of returns, or leave them as they are (fixed)"
    )
    legacy: LegacyRewardSpec = LegacyRewardSpec()

    def fill_defaults(self) -> "RewardSpec":
        """Set the fields that depend on the rule; filling twice changes nothing."""
        penalty = 10.0 if RULES.origin(self.rule) == LEGACY else 1.0
        dripped = 0.7 if self.rule == "basic_plus" else 0.0
        legacy = self.legacy
        return replace(
            self,
            governor_penalty=penalty if self.governor_penalty is None else self.governor_penalty,
            legacy=replace(legacy, drip_fraction=dripped) if legacy.drip_fraction is None else legacy,
        )


class HeadFloors(NamedTuple):
    """Floor under the probability of each legal choice, per head; at most half of the probability in all."""

    op: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.OP])] = 0.005
    slot: Annotated[float, Field(ge=0, le=0.5)] = 0.01  # times the slots of the run: checked there
    blueprint: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.BLUEPRINT])] = 0.01
    style: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.STYLE])] = 0.01
    tempo: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.TEMPO])] = 0.01
    alpha_target: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.ALPHA_TARGET])] = 0.01
    alpha_speed: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.ALPHA_SPEED])] = 0.01
    alpha_curve: Annotated[float, Field(ge=0, le=0.5 / SIZES[Head.ALPHA_CURVE])] = 0.01


class HeadFactors(NamedTuple):
    """Factor of the entropy coefficient, per head."""

    op: NonNegative = 1.0
    slot: NonNegative = 1.0
    blueprint: NonNegative = 1.0
    style: NonNegative = 1.0
    tempo: NonNegative = 1.0
    alpha_target: NonNegative = 1.0
    alpha_speed: NonNegative = 1.0
    alpha_curve: NonNegative = 1.0


LogOdds = Annotated[float, Field(ge=-10, le=10)]


class OpBias(NamedTuple):
    """Log-odds of each op before training.

    An untrained policy lets seeds live and keeps them, so that returns of complete lives are observed.
    """

    WAIT: LogOdds = 0.0
    GERMINATE: LogOdds = 0.0
    SET_ALPHA_TARGET: LogOdds = -2.0
    PRUNE: LogOdds = -3.0
    FOSSILIZE: LogOdds = 1.0
    ADVANCE: LogOdds = 0.0


@spec
class PolicySpec(Spec):
    """The policy network and its probabilities before training."""

    PATH: ClassVar[str] = "policy"

    network: Annotated[str, OneOf(NETWORKS)] = option(
        "lstm", text="network of a trained policy; the settings below are those of lstm, but for floor"
    )
    hidden: Annotated[int, Field(ge=8, le=4_096)] = option(128, text="width of the memory and the layers of the policy")
    blueprint_dim: Annotated[int, Field(ge=1, le=64)] = option(4, text="width of the embedding of a blueprint")
    floor: HeadFloors = HeadFloors()
    op_bias: OpBias = OpBias()
    full_bias: LogOdds = option(2.0, text="log-odds of the alpha target FULL before training")


@spec
class PpoSpec(Spec):
    """The update of the policy.  Schedules count rounds."""

    PATH: ClassVar[str] = "ppo"

    epochs: Annotated[int, Field(ge=1, le=1_000)] = option(
        4, "--ppo-epochs", "N", LEARNING, "passes over a round in the update of the policy"
    )
    minibatches: Annotated[Count, Null("gcd(4, envs)")] = option(
        None, text="minibatches per pass, each a group of envs with whole episodes"
    )
    lr: Positive = option(1e-3, "--lr", "X", LEARNING, "learning rate of the policy")
    lr_end: Annotated[Positive | None, Null("constant")] = option(None, text="learning rate at the end of its schedule")
    lr_anneal_rounds: Natural = option(0, text="rounds until lr_end is reached")
    ratio: Literal["head", "joint"] = option(
        "head", text="clip the probability ratio of each head, or that of the whole action"
    )
    clip: PositiveShare = option(0.2, text="clip range of the probability ratio")
    target_kl: Annotated[Positive | None, Null("no stop")] = option(
        0.03, text="divergence in nats; an update stops at 1.5 times of it"
    )
    gamma: PositiveShare = option(0.995, text="discount per epoch")
    gae_lambda: Share = option(0.95, text="decay of the advantage estimate per epoch")
    entropy_coef: NonNegative = option(0.05, text="entropy coefficient in the first round")
    entropy_coef_end: Annotated[NonNegative | None, Null("constant")] = option(
        0.01, text="entropy coefficient after entropy_anneal_rounds"
    )
    entropy_anneal_rounds: Natural = option(
        40, "--entropy-anneal-rounds", "N", LEARNING, "rounds until the entropy coefficient is least"
    )
    entropy_coef_head: HeadFactors = HeadFactors()
    value_coef: NonNegative = option(0.5, text="weight of the critic's loss")
    value_warmup_rounds: Natural = option(
        0, "--value-warmup-rounds", "N", LEARNING, "rounds until the critic counts in full"
    )
    price_warmup_rounds: Natural = option(0, text="rounds in which prices of training instances rise to their range")
    contribution_coef: NonNegative = option(0.0, text="weight of a head that predicts contributions; 0 = no such head")
    max_grad_norm: Annotated[Positive | None, Null("no clipping")] = option(
        1.0, text="limit of the gradient norm of the policy"
    )
    weight_decay: NonNegative = option(0.0, text="weight decay of the policy")


@spec
class EngineSpec(Spec):
    """Devices, threads and compile mode of a run."""

    PATH: ClassVar[str] = "engine"

    devices: Annotated[tuple[str, ...], Names(least=1, most=1)] = option(
        ("auto",), "--device", "D", DEVICE, "auto (default: a GPU if there is one), cpu, cuda, cuda:N"
    )
    threads: Annotated[int | None, Field(ge=1, le=4_096), Null("one per core")] = option(
        None, "--threads", "N", DEVICE, "CPU threads (default: 1 on digits, else one per core)"
    )
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = option(
        COMPILE_OFF, "--compile", "MODE", DEVICE, "off (default), default, reduce-overhead, max-autotune"
    )
    max_graphs: Annotated[int, Field(ge=1, le=1_024)] = option(
        32, text="sizes of plans that are compiled; others run eager"
    )
    phase_profile: bool = option(
        True, "--no-phase-profile", "", DEVICE, "do not measure the time of the phases of a round"
    )

    def cross_checks(self) -> list[str]:
        """Every device has a valid name; its existence is checked when it is opened."""
        wrong = [name for name in self.devices if not _DEVICE_NAME.fullmatch(name)]
        return [f"engine.devices: expected auto, cpu, cuda or cuda:0 .. cuda:99, got {format_value(n)}" for n in wrong]


@spec
class CheckpointSpec(Spec):
    """Frequency and retention of checkpoints."""

    PATH: ClassVar[str] = "checkpoint"

    every_rounds: Annotated[Count | None, Null("only at the end")] = option(
        10, "--checkpoint-every", "N", OUTPUT, "save a checkpoint every N rounds (default 10)"
    )
    every_minutes: Annotated[Positive | None, Null("not by the clock")] = option(
        None, text="minutes between two checkpoints, also inside a round"
    )
    keep: Annotated[int, Field(ge=1, le=1_000)] = option(
        3, "--keep", "N", OUTPUT, "checkpoints to keep, besides the best one (default 3)"
    )
    on_failure: Literal["continue", "stop"] = option(
        CONTINUE, text="continue or stop after a checkpoint, but the last one, that could not be written"
    )
