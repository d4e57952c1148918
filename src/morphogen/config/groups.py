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
from morphogen.vocab.action import SIZES, Head
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.reward import LEGACY, RULES
from morphogen.vocab.text import format_value


@spec
class LegacyRewardSpec(Spec):
    """Weights, caps and switches of the legacy kernels; a rule reads those of its parts."""

    PATH: ClassVar[str] = "reward.legacy"

    contribution_weight: NonNegative = 1.0
    proxy_weight: NonNegative = 0.3  # of progress within a stage, where no contribution was measured
    pbrs_weight: NonNegative = 0.3
    stage_progress: NonNegative = 0.3  # potential per epoch in a stage ...
    stage_progress_cap: NonNegative = 2.0  # ... and its limit
    combine: Literal["harmonic", "minimum"] = "harmonic"
    ratio_threshold: Positive = 5.0
    discount_steepness: NonNegative = 3.0
    escrow_clip: NonNegative = 2.0  # 0: no clipping
    rent_weight: NonNegative = 0.5
    rent_cap: NonNegative = 1.5
    host_params_floor: Count = 200
    slot_rent_ratio: NonNegative = 0.0039  # of the host's parameters, for every blended seed
    shock_weight: NonNegative = 0.1958
    shock_cap: NonNegative = 1.0
    free_slots: Natural = 1
    warmup_epochs: Natural = 10  # 0: no discount of early germination
    warmup_floor: Share = 0.4
    basic_terminal_weight: NonNegative = 5.0
    basic_bonus_scale: NonNegative = 0.5
    param_budget: Count = 500_000  # of basic and basic_plus, whatever the task
    param_price: NonNegative = 0.1
    drip_fraction: Annotated[Share, Null("0, basic_plus 0.7")] = option(None)
    drip_cap: NonNegative = 0.1
    drip_negative_ratio: NonNegative = 0.5
    drip_min_epochs: Count = 5
    use_pbrs: bool = True
    use_terminal: bool = True
    use_anti_gaming: bool = True
    use_timing: bool = True


COMPILE_OFF, COMPILE_DEFAULT, COMPILE_REDUCE_OVERHEAD = "off", "default", "reduce-overhead"  # of the compile modes
AUTO, RESIDENT, STREAMED = "auto", "resident", "streamed"  # place of the training split
CONTINUE, STOP = "continue", "stop"  # after a checkpoint that failed
_DEVICE_NAME = re.compile("auto|cpu|cuda|cuda:(0|[1-9][0-9]?)")  # torch keeps the index in 8 bits and wraps beyond


@spec
class DataSpec(Spec):
    """Place of the data, and the way in which it is served."""

    PATH: ClassVar[str] = "data"

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
    resident_limit_gib: Positive = 4.0  # size of all splits up to which auto is resident
    prefetch: Annotated[int, Field(ge=1, le=64)] = 3  # minibatches read ahead of streamed data
    batch: Annotated[int, Field(ge=1, le=65_536), Null(BY_TASK)] = option(
        None, "--batch", "N", SIZE, "samples per optimiser step of a host"
    )
    minibatches: Annotated[int, Field(ge=1, le=100_000), Null(BY_TASK)] = option(
        None, "--minibatches", "N", SIZE, "optimiser steps of a host per epoch"
    )
    val_samples: Annotated[Count | Literal["task"] | None, Null("all")] = "task"
    augment: bool = option(True, "--no-augment", "", TASK, "train on the images as they are")


@spec
class HostSpec(Spec):
    """The host networks and the optimiser that trains hosts and seeds."""

    PATH: ClassVar[str] = "host"

    lr: Annotated[float, Field(gt=0, le=10), Null(BY_TASK)] = option(None)
    seed_lr: Annotated[float, Field(gt=0, le=10), Null(BY_TASK)] = option(None)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Share = 5e-4
    max_grad_norm: Annotated[Positive | None, Null("no clipping")] = 1.0
    norm: Literal["group", "batch"] = "group"
    width: Annotated[int, Field(ge=1, le=4_096), Null(BY_TASK)] = option(None)  # channels of the first block


@spec
class LifecycleSpec(Spec):
    """Conditions for the moves of a seed: gates, cooling, pruning."""

    PATH: ClassVar[str] = "lifecycle"

    permissive_gates: bool = True
    auto_forward: Annotated[tuple[str, ...], Names(among=tuple(gate.name for gate in AUTO_GATES))] = ()
    min_prune_age: Natural = 5  # epochs
    embargo_epochs: Count = 5
    min_training_epochs: Natural = 10
    min_blending_epochs: Natural = 10
    min_improvement: float = 0.5  # percentage points
    min_gradient_ratio: NonNegative = 0.1
    min_gradient_health: Share = 0.7
    min_contribution: float = 1.0  # percentage points
    vanishing: Positive = 1e-7  # gradient norm
    exploding: float = 10.0

    def cross_checks(self) -> list[str]:
        """The two gradient limits are in order."""
        if self.vanishing < self.exploding:
            return []
        return [f"lifecycle.exploding: expected > lifecycle.vanishing ({self.vanishing}), got {self.exploding}"]


@spec
class GovernorSpec(Spec):
    """Conditions for rolling an env back to its last healthy snapshot."""

    PATH: ClassVar[str] = "governor"

    enabled: bool = True  # false: signs are reported, nothing is rolled back
    sensitivity: Positive = 6.0  # standard deviations
    multiplier: Annotated[float, Field(ge=1)] = 1.5  # of the mean loss
    chance_band: OpenShare = 0.065  # share of the loss of guessing
    good_below: OpenShare = 0.6
    warmup_limit: Annotated[float, Field(gt=1)] = 2.0  # of the loss of guessing
    window: Annotated[int, Field(ge=2, le=10_000)] = 20  # losses
    min_samples: Annotated[int, Field(ge=2, lt=2**63)] = 10
    panics: Count = 3  # anomalous epochs in a row
    snapshot_every: Count = 5  # epochs
    max_rollbacks: Annotated[Count | None, Null("no limit")] = None  # in one episode; then an env is left alone

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

    plateau_points: NonNegative = 0.5  # percentage points
    stable_gain: Positive = 0.03  # share of the previous loss
    stable_regression: Positive = 0.05
    stable_epochs: Natural = 3  # 0 = stable from reset on


@spec
class AttributionSpec(Spec):
    """Frequency and resolution of the measurement of contributions."""

    PATH: ClassVar[str] = "attribution"

    every: Count = 1  # epochs
    permutation_pairs: Annotated[int, Field(ge=1, le=64)] = 2  # used with more than 4 live seeds


@spec
class RewardSpec(Spec):
    """Reward rule and its parameters."""

    PATH: ClassVar[str] = "reward"

    rule: Annotated[str, OneOf(RULES)] = option(
        "delta",
        "--reward",
        "RULE",
        LEARNING,
        f"reward of the policy: {', '.join(RULES)}, or another rule that `morphogen rewards` lists "
        "(default: value on digits, else delta)",
    )
    potential_scale: Annotated[float, Field(ge=0, le=2)] = 1.0
    governor_penalty: Annotated[NonNegative, Null("1, legacy rules 10")] = option(None)
    op_cost: Annotated[float, Field(ge=0, le=0.01)] = 0.0
    return_scale: Literal["running", "fixed"] = "running"
    legacy: LegacyRewardSpec = LegacyRewardSpec()

    def fill_defaults(self) -> "RewardSpec":
        """Set the fields that depend on the rule; filling twice changes nothing."""
        penalty = 10.0 if RULES.get(self.rule) == LEGACY else 1.0
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

    hidden: Annotated[int, Field(ge=8, le=4_096)] = 128
    blueprint_dim: Annotated[int, Field(ge=1, le=64)] = 4
    floor: HeadFloors = HeadFloors()
    op_bias: OpBias = OpBias()
    full_bias: LogOdds = 2.0  # log-odds of the alpha target FULL before training


@spec
class PpoSpec(Spec):
    """The update of the policy.  Schedules count rounds."""

    PATH: ClassVar[str] = "ppo"

    epochs: Annotated[int, Field(ge=1, le=1_000)] = option(
        4, "--ppo-epochs", "N", LEARNING, "passes over a round in the update of the policy"
    )
    minibatches: Annotated[Count, Null("gcd(4, envs)")] = option(None)
    lr: Positive = option(1e-3, "--lr", "X", LEARNING, "learning rate of the policy")
    lr_end: Annotated[Positive | None, Null("constant")] = None
    lr_anneal_rounds: Natural = 0
    ratio: Literal["head", "joint"] = "head"
    clip: PositiveShare = 0.2
    target_kl: Annotated[Positive | None, Null("no stop")] = 0.03  # nats; stop at 1.5 times
    gamma: PositiveShare = 0.995
    gae_lambda: Share = 0.95
    entropy_coef: NonNegative = 0.05
    entropy_coef_end: Annotated[NonNegative | None, Null("constant")] = 0.01
    entropy_anneal_rounds: Natural = option(
        40, "--entropy-anneal-rounds", "N", LEARNING, "rounds until the entropy coefficient is least"
    )
    entropy_coef_head: HeadFactors = HeadFactors()
    value_coef: NonNegative = 0.5
    value_warmup_rounds: Natural = option(
        0, "--value-warmup-rounds", "N", LEARNING, "rounds until the critic counts in full"
    )
    price_warmup_rounds: Natural = 0  # in which prices of instances rise
    contribution_coef: NonNegative = 0.0  # 0: no such head
    max_grad_norm: Annotated[Positive | None, Null("no clipping")] = 1.0
    weight_decay: NonNegative = 0.0


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
    max_graphs: Annotated[int, Field(ge=1, le=1_024)] = 32  # sizes of plans that are compiled; others run eager
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
    every_minutes: Annotated[Positive | None, Null("not by the clock")] = None  # also inside a round
    keep: Annotated[int, Field(ge=1, le=1_000)] = option(
        3, "--keep", "N", OUTPUT, "checkpoints to keep, besides the best one (default 3)"
    )
    on_failure: Literal["continue", "stop"] = CONTINUE  # where one but the last cannot be written
