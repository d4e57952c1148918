"""The groups of a run's configuration: one frozen dataclass per subject, every field with default
and range.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from morphogen.config.extra_settings import fill_owner, with_extras
from morphogen.config.fields import (
    DERIVED,
    UNSET,
    Checks,
    Count,
    FilePath,
    Names,
    Natural,
    NonNegative,
    OneOf,
    OpenShare,
    Positive,
    Several,
    Share,
    Spec,
    is_unset,
    spec,
)
from morphogen.config.parts import DATASETS, HOSTS, RULES
from morphogen.vocab.limits import AUTO_GATES

# Places of the training split.
AUTO = "auto"
RESIDENT = "resident"
STREAMED = "streamed"
MOMENTUM = 0.9


@spec
class DataSpec(Spec):
    """Place of the data, and the way in which it is served.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.resolve(mg.RunSpec(task="digits", data={"batch": 8}))
        >>> (
        ...     spec.data.batch,
        ...     spec.data.minibatches,
        ...     spec.data.val_samples,
        ... )  # the task decides what is not given
        (8, 16, None)
        >>> mg.DataSpec(placement="gpu")
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: data.placement: expected 'auto', 'resident' or
            'streamed', got "gpu"
    """

    PATH: ClassVar[str] = "data"

    name: Annotated[str, OneOf(DATASETS), DERIVED] = UNSET
    """data set; null = from the task"""
    dir: FilePath | None = None
    """folder of data (default $MORPHOGEN_DATA, else ./data)"""
    placement: Literal["auto", "resident", "streamed"] = AUTO
    """training data on the device (resident) or read ahead from the host (streamed); default
    auto: by its size
    """
    resident_limit_gib: Positive = 4.0
    """size of all splits in GiB up to which placement auto is resident"""
    prefetch: Annotated[int, Field(ge=1, le=64)] = 3
    """minibatches read ahead of streamed data"""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    """samples per optimiser step of a host"""
    minibatches: Annotated[int, Field(ge=1, le=100_000)] = 16
    """optimiser steps of a host per epoch"""
    val_samples: Count | None = None
    """validation samples per epoch; null = all"""
    augment: bool = True
    """false: train on the images as they are"""


@spec
class HostSpec(Spec):
    """The host networks and the optimiser that trains hosts and seeds.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.resolve(mg.RunSpec(task="digits", host={"width": 8}))
        >>> spec.host.width, spec.host.lr  # the task decides what is not given
        (8, 0.05)
        >>> mg.HostSpec(momentum=1)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: host.momentum: expected a number less than 1, got 1
    """

    PATH: ClassVar[str] = "host"

    lr: Annotated[float, Field(gt=0, le=10)] = 0.05
    """learning rate of hosts"""
    seed_lr: Annotated[float, Field(gt=0, le=10)] = 0.1
    """learning rate of seeds"""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """optimiser of hosts and seeds; adamw wants smaller learning rates"""
    schedule: Literal["constant", "cosine", "warmup_cosine"] = "constant"
    """course of both learning rates over an episode: cosine falls to 0, warmup_cosine rises
    before
    """
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """share of the minibatches of an episode in which warmup_cosine rises"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = MOMENTUM
    """momentum of sgd for hosts and seeds; adamw takes none"""
    weight_decay: Share = 5e-4
    """weight decay of hosts; seeds have none"""
    max_grad_norm: Positive | None = 1.0
    """limit of the gradient norm of each host, and of each seed; null = no clipping"""
    name: Annotated[str, OneOf(HOSTS)] | None = None
    """host network; null = from the task"""
    norm: Literal["group", "batch"] = "group"
    """normalisation layers of the host: over groups of channels, or over the batch"""
    width: Annotated[int, Field(ge=1, le=4_096), DERIVED] = UNSET
    """channels of the first block, or of a place in a sequence; null = from the task"""
    vocabulary: Annotated[int, Field(ge=2, le=2**20)] | None = None
    """tokens of a language model, as many as its text has; null = from the task"""
    weights: Annotated[tuple[str, ...], Names()] = ()
    """files from which hosts start, one for each env in turn: parameters (.safetensors or .pt), or
    grown networks with their seeds
    """
    freeze: Annotated[tuple[str, ...], Names()] = ()
    """parameters of hosts that do not train, as patterns of names, e.g. block0.*"""

    def cross_checks(self) -> Checks:
        """A momentum is for sgd."""
        fits = self.optimizer == "sgd" or self.momentum == MOMENTUM
        return {"momentum": (fits, f"{MOMENTUM} (not set), as host.optimizer is {self.optimizer}")}


@spec
class LifecycleSpec(Spec):
    """Conditions for the moves of a seed: gates, cooling, pruning.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.LifecycleSpec(
        ...     auto_forward=("HOLD", "TRAIN")
        ... ).auto_forward  # stored in the order of the gates
        ('TRAIN', 'HOLD')
        >>> mg.LifecycleSpec(vanishing=1.0, exploding=0.1)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: lifecycle.exploding: expected
            > lifecycle.vanishing (1.0), got 0.1
    """

    PATH: ClassVar[str] = "lifecycle"

    permissive_gates: bool = True
    """gates check little: times, health of gradients; false checks contributions and progress as
    well
    """
    auto_forward: Annotated[
        tuple[str, ...], Names(among=tuple(gate.name for gate in AUTO_GATES))
    ] = ("TRAIN", "HOLD")
    """gates that a seed passes by itself as soon as it may"""
    min_prune_age: Natural = 5
    """epochs since germination before which PRUNE is illegal"""
    embargo_epochs: Count = 5
    """epochs that a slot cools down after a seed was pruned"""
    min_training_epochs: Natural = 1
    """epochs in training before gate BLEND opens"""
    min_blending_epochs: Natural = 10
    """epochs in blending before gate HOLD opens, unless gates are permissive"""
    min_improvement: float = 0.5
    """points of accuracy gained in training for gate BLEND, unless gates are permissive"""
    min_gradient_ratio: NonNegative = 0.1
    """gradient norm over the host's for gate BLEND, unless gates are permissive"""
    min_gradient_health: Share = 0.7
    """health of the gradients of a seed, 0 to 1, for gate BLEND if gates are permissive"""
    min_contribution: float = 1.0
    """points of contribution for gate FOSSILIZE, unless gates are permissive"""
    vanishing: Positive = 1e-7
    """gradient norm below which a tensor counts as vanishing"""
    exploding: float = 10.0
    """gradient norm above which a tensor counts as exploding"""

    def cross_checks(self) -> Checks:
        """The two gradient limits are in order."""
        limit = f"> lifecycle.vanishing ({self.vanishing})"
        return {"exploding": (self.vanishing < self.exploding, limit)}


@spec
class GovernorSpec(Spec):
    """Conditions for rolling an env back to its last healthy snapshot.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.GovernorSpec(panics=1, max_rollbacks=2).max_rollbacks
        2
        >>> mg.GovernorSpec(window=5)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: governor.window: expected >= governor.min_samples (10), got 5
    """

    PATH: ClassVar[str] = "governor"

    enabled: bool = True
    """roll back envs that panic; false reports signs and rolls nothing back"""
    sensitivity: Positive = 6.0
    """standard deviations above the mean loss that are an anomaly"""
    multiplier: Annotated[float, Field(ge=1)] = 1.5
    """times the mean loss that are an anomaly"""
    chance_band: OpenShare = 0.065
    """distance from the loss of guessing, as its share, that counts as guessing"""
    good_below: OpenShare = 0.6
    """mean loss, as a share of the loss of guessing, below which a return to guessing is a panic"""
    warmup_limit: Annotated[float, Field(gt=1)] = 2.0
    """times the loss of guessing that are an anomaly before enough losses are known"""
    window: Annotated[int, Field(ge=2, le=10_000)] = 20
    """normal losses that mean and deviation are computed from"""
    min_samples: Several = 10
    """normal losses before mean and deviation are used"""
    panics: Count = 3
    """consecutive anomalous epochs that are a panic"""
    snapshot_every: Count = 5
    """epochs between two snapshots of a healthy env"""
    max_rollbacks: Count | None = None
    """rollbacks of an env in one episode, after which it is left alone; null = no limit"""

    def cross_checks(self) -> Checks:
        """Bands and counts fit each other."""
        band = self.chance_band
        return {
            "good_below": (
                self.good_below < 1 - band,
                f"< 1 - governor.chance_band ({1 - band:g})",
            ),
            "warmup_limit": (
                self.warmup_limit > 1 + band,
                f"> 1 + governor.chance_band ({1 + band:g})",
            ),
            "window": (
                self.window >= self.min_samples,
                f">= governor.min_samples ({self.min_samples})",
            ),
        }


@spec
class SignalSpec(Spec):
    """Limits from which a host counts as on a plateau, or as stable.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.SignalSpec(
        ...     stable_epochs=0
        ... ).stable_epochs  # every host counts as stable from the start
        0
        >>> mg.SignalSpec(stable_gain=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: signal.stable_gain: expected a number greater than 0, got 0
    """

    PATH: ClassVar[str] = "signal"

    plateau_points: NonNegative = 0.5
    """points of accuracy per epoch below which a host is on a plateau"""
    stable_gain: Positive = 0.03
    """fall of the loss, as its share, below which an epoch is stable"""
    stable_regression: Positive = 0.05
    """rise of the loss, as its share, above which an epoch is not stable"""
    stable_epochs: Natural = 3
    """consecutive stable epochs after which a host counts as stable; 0 = from the reset on"""


@spec
class AttributionSpec(Spec):
    """Frequency and resolution of the measurement of contributions.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.AttributionSpec(every=4, permutation_pairs=8).permutation_pairs
        8
        >>> mg.AttributionSpec(permutation_pairs=100)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: attribution.permutation_pairs: expected a number less than
            or equal to 64, got 100
    """

    PATH: ClassVar[str] = "attribution"

    every: Count = 1
    """epochs between two measurements of all contributions"""
    permutation_pairs: Annotated[int, Field(ge=1, le=64)] = 2
    """pairs of random orders that contributions are sampled from, with more than 4 live seeds"""


@spec
@with_extras
class EvaluationSpec(Spec):
    """The learning curve on held-out instances: a few of them are played again and again while the
    policy learns.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.EvaluationSpec(every_rounds=0).every_rounds  # never
        0
        >>> mg.EvaluationSpec(episodes=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: evaluation.episodes: expected a number greater than or
            equal to 1, got 0
    """

    PATH: ClassVar[str] = "evaluation"

    every_rounds: Natural = 10
    """rounds between two plays of the policy on the same held-out instances; 0 = never"""
    episodes: Annotated[int, Field(ge=1, le=1_000_000), DERIVED] = UNSET
    """held-out instances of such a play; null = envs / 4, 2 to 16"""
    greedy: bool = False
    """the policy takes its likeliest actions in these plays and at the end; false: draws them"""


@spec
@with_extras
class RewardSpec(Spec):
    """Reward rule and its parameters.

    Raises: ConfigError with all faults, a line each; an unknown rule is reported with the known
    ones.

    Example:
        >>> import morphogen as mg
        >>> mg.RewardSpec(
        ...     rule="value"
        ... ).fill_defaults().governor_penalty  # the rule decides what is not given
        1.0
        >>> mg.RewardSpec(op_cost=1)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: reward.op_cost: expected a number
            less than or equal to 0.01, got 1
    """

    PATH: ClassVar[str] = "reward"

    rule: Annotated[str, OneOf(RULES)] = "delta"
    """reward of the policy, as `morphogen rewards` lists (default: of the task, else delta)"""
    potential_scale: Annotated[float, Field(ge=0, le=2)] = 1.0
    """weight of the potential that pays progress before it is delivered"""
    governor_penalty: Annotated[NonNegative, DERIVED] = UNSET
    """penalty for a rollback; null = from the rule"""
    op_cost: Annotated[float, Field(ge=0, le=0.01)] = 0.0
    """cost of an executed op other than WAIT"""
    return_scale: Literal["running", "fixed"] = "running"
    """divide rewards by a running scale of returns, or leave them as they are (fixed)"""

    def fill_defaults(self) -> "RewardSpec":
        """Set the fields that depend on the rule; filling twice changes nothing."""
        filled: RewardSpec = fill_owner(self)
        return (
            replace(filled, governor_penalty=1.0) if is_unset(filled.governor_penalty) else filled
        )
