"""The groups of a run's configuration: one frozen dataclass per subject, every field with default and range."""

import re
from dataclasses import dataclass, field, replace
from typing import ClassVar

from morphogen.config.fields import Choice, Flag, Int, Names, PerKey, Real, Spec, Text, nested, spec_field
from morphogen.config.instance_spec import FROM_TASK
from morphogen.config.legacy_rewards import LegacyRewardSpec
from morphogen.vocab.action import HEADS, SIZES, Head, Op
from morphogen.vocab.limits import AUTO_GATES
from morphogen.vocab.reward import LEGACY, RULES
from morphogen.vocab.text import format_value

POSITIVE = Real(above=0)
COMPILE_OFF, COMPILE_DEFAULT, COMPILE_REDUCE_OVERHEAD = "off", "default", "reduce-overhead"  # of the compile modes
_MODES = (COMPILE_OFF, COMPILE_DEFAULT, COMPILE_REDUCE_OVERHEAD, "max-autotune")
AUTO, RESIDENT, STREAMED = "auto", "resident", "streamed"  # where the training split lies
CONTINUE, STOP = "continue", "stop"  # after a checkpoint that failed
_CUDA = re.compile("cuda:(0|[1-9][0-9]?)")  # torch keeps the index in 8 bits and wraps beyond


@dataclass(frozen=True)
class DataSpec(Spec):
    """Place of the data, and the way in which it is served."""

    PATH: ClassVar[str] = "data"

    dir: str | None = spec_field(None, Text(what="a path", null="$MORPHOGEN_DATA, else ./data"))
    placement: str = spec_field(AUTO, Choice(names=(AUTO, RESIDENT, STREAMED)))  # of the training split
    resident_limit_gib: float = spec_field(4.0, POSITIVE)  # size of all splits up to which auto is resident
    prefetch: int = spec_field(3, Int(low=1, high=64))  # minibatches read ahead of streamed data
    batch: int = spec_field(None, Int(low=1, high=65_536, null=FROM_TASK))
    minibatches: int = spec_field(None, Int(low=1, high=100_000, null=FROM_TASK))
    val_samples: int | str | None = spec_field("task", Int(low=1, words=("task",), null="all"))
    augment: bool = spec_field(True, Flag())


@dataclass(frozen=True)
class HostSpec(Spec):
    """The host networks and the optimiser that trains hosts and seeds."""

    PATH: ClassVar[str] = "host"

    lr: float = spec_field(None, Real(above=0, high=10, null=FROM_TASK))
    seed_lr: float = spec_field(None, Real(above=0, high=10, null=FROM_TASK))
    momentum: float = spec_field(0.9, Real(low=0, below=1))
    weight_decay: float = spec_field(5e-4, Real(low=0, high=1))
    max_grad_norm: float | None = spec_field(1.0, Real(above=0, null="no clipping"))
    norm: str = spec_field("group", Choice(names=("group", "batch")))
    width: int = spec_field(None, Int(low=1, high=4_096, null=FROM_TASK))  # channels of the first block


@dataclass(frozen=True)
class LifecycleSpec(Spec):
    """Conditions for the moves of a seed: gates, cooling, pruning."""

    PATH: ClassVar[str] = "lifecycle"

    permissive_gates: bool = spec_field(True, Flag())
    auto_forward: tuple[str, ...] = spec_field((), Names(among=tuple(gate.name for gate in AUTO_GATES)))
    min_prune_age: int = spec_field(5, Int(low=0))  # epochs
    embargo_epochs: int = spec_field(5, Int(low=1))
    min_training_epochs: int = spec_field(10, Int(low=0))
    min_blending_epochs: int = spec_field(10, Int(low=0))
    min_improvement: float = spec_field(0.5, Real())  # percentage points
    min_gradient_ratio: float = spec_field(0.1, Real(low=0))
    min_gradient_health: float = spec_field(0.7, Real(low=0, high=1))
    min_contribution: float = spec_field(1.0, Real())  # percentage points
    vanishing: float = spec_field(1e-7, POSITIVE)  # gradient norm
    exploding: float = spec_field(10.0, Real())

    def cross_checks(self) -> list[str]:
        """The two gradient limits are in order."""
        if self.vanishing < self.exploding:
            return []
        return [f"lifecycle.exploding is {self.exploding}; want > lifecycle.vanishing, which is {self.vanishing}"]


@dataclass(frozen=True)
class GovernorSpec(Spec):
    """Conditions for rolling an env back to its last healthy snapshot."""

    PATH: ClassVar[str] = "governor"

    enabled: bool = spec_field(True, Flag())  # false: signs are reported, nothing is rolled back
    sensitivity: float = spec_field(6.0, POSITIVE)  # standard deviations
    multiplier: float = spec_field(1.5, Real(low=1))  # of the mean loss
    chance_band: float = spec_field(0.065, Real(above=0, below=1))  # share of the loss of guessing
    good_below: float = spec_field(0.6, Real(above=0, below=1))
    warmup_limit: float = spec_field(2.0, Real(above=1))  # of the loss of guessing
    window: int = spec_field(20, Int(low=2, high=10_000))  # losses
    min_samples: int = spec_field(10, Int(low=2))
    panics: int = spec_field(3, Int(low=1))  # anomalous epochs in a row
    snapshot_every: int = spec_field(5, Int(low=1))  # epochs
    max_rollbacks: int | None = spec_field(
        None, Int(low=1, null="no limit")
    )  # in one episode; then an env is left alone

    def cross_checks(self) -> list[str]:
        """Bands and counts fit each other."""
        band = self.chance_band
        checks = {
            "good_below": (self.good_below < 1 - band, f"< 1 - governor.chance_band, which is {1 - band:g}"),
            "warmup_limit": (self.warmup_limit > 1 + band, f"> 1 + governor.chance_band, which is {1 + band:g}"),
            "window": (self.window >= self.min_samples, f">= governor.min_samples, which is {self.min_samples}"),
        }
        return [f"governor.{n} is {getattr(self, n)}; want {text}" for n, (ok, text) in checks.items() if not ok]


@dataclass(frozen=True)
class SignalSpec(Spec):
    """Limits from which a host counts as on a plateau, or as stable."""

    PATH: ClassVar[str] = "signal"

    plateau_points: float = spec_field(0.5, Real(low=0))  # percentage points
    stable_gain: float = spec_field(0.03, POSITIVE)  # share of the previous loss
    stable_regression: float = spec_field(0.05, POSITIVE)
    stable_epochs: int = spec_field(3, Int(low=0))  # 0 = stable from reset on


@dataclass(frozen=True)
class AttributionSpec(Spec):
    """Frequency and resolution of the measurement of contributions."""

    PATH: ClassVar[str] = "attribution"

    every: int = spec_field(1, Int(low=1))  # epochs
    permutation_pairs: int = spec_field(2, Int(low=1, high=64))  # used with more than 4 live seeds


@dataclass(frozen=True)
class RewardSpec(Spec):
    """Reward rule and its parameters."""

    PATH: ClassVar[str] = "reward"

    rule: str = spec_field("delta", Choice(names=RULES))
    potential_scale: float = spec_field(1.0, Real(low=0, high=2))
    governor_penalty: float = spec_field(None, Real(low=0, null="1, legacy rules 10"))
    op_cost: float = spec_field(0.0, Real(low=0, high=0.01))
    return_scale: str = spec_field("running", Choice(names=("running", "fixed")))
    legacy: LegacyRewardSpec = field(default_factory=LegacyRewardSpec, metadata=nested(LegacyRewardSpec))

    def fill_defaults(self) -> "RewardSpec":
        """The same with every field set that the rule decides; filling twice changes nothing."""
        penalty = 10.0 if RULES.get(self.rule) == LEGACY else 1.0
        dripped = 0.7 if self.rule == "basic_plus" else 0.0
        legacy = self.legacy
        return replace(
            self,
            governor_penalty=penalty if self.governor_penalty is None else self.governor_penalty,
            legacy=replace(legacy, drip_fraction=dripped) if legacy.drip_fraction is None else legacy,
        )


_CHOICES = {head: 1 if head is Head.SLOT else SIZES[head] for head in Head}  # slots: checked against the run
_FLOORS = PerKey(
    names=HEADS,
    defaults=tuple(0.005 if head is Head.OP else 0.01 for head in Head),
    each=tuple(Real(low=0, high=0.5 / _CHOICES[head]) for head in Head),
)
_OPS = tuple(op.name for op in Op)
# A policy that has learned nothing yet lets seeds live and keeps them, so that it sees what whole lives are worth.
_INITIAL_OP_BIAS = {Op.SET_ALPHA_TARGET: -2.0, Op.PRUNE: -3.0, Op.FOSSILIZE: 1.0}
_BIASES = PerKey(
    names=_OPS, defaults=tuple(_INITIAL_OP_BIAS.get(op, 0.0) for op in Op), each=(Real(low=-10, high=10),) * len(_OPS)
)
_FACTORS = PerKey(names=HEADS, defaults=(1.0,) * len(HEADS), each=(Real(low=0),) * len(HEADS))


@dataclass(frozen=True)
class PolicySpec(Spec):
    """The policy network and the floor under the probability of each legal choice, per head in `HEADS` order."""

    PATH: ClassVar[str] = "policy"

    hidden: int = spec_field(128, Int(low=8, high=4_096))
    blueprint_dim: int = spec_field(4, Int(low=1, high=64))
    floor: tuple[float, ...] = spec_field(_FLOORS.defaults, _FLOORS)
    op_bias: tuple[float, ...] = spec_field(
        _BIASES.defaults, _BIASES
    )  # log-odds of each op before training, in `Op` order
    full_bias: float = spec_field(2.0, Real(low=-10, high=10))  # log-odds of the alpha target FULL before training


@dataclass(frozen=True)
class PpoSpec(Spec):
    """The update of the policy.  Schedules count rounds."""

    PATH: ClassVar[str] = "ppo"

    epochs: int = spec_field(4, Int(low=1, high=1_000))
    minibatches: int = spec_field(None, Int(low=1, null="gcd(4, envs)"))
    lr: float = spec_field(1e-3, POSITIVE)
    lr_end: float | None = spec_field(None, Real(above=0, null="constant"))
    lr_anneal_rounds: int = spec_field(0, Int(low=0))
    ratio: str = spec_field("head", Choice(names=("head", "joint")))
    clip: float = spec_field(0.2, Real(above=0, high=1))
    target_kl: float | None = spec_field(0.03, Real(above=0, null="no stop"))  # nats; stop at 1.5 times
    gamma: float = spec_field(0.995, Real(above=0, high=1))
    gae_lambda: float = spec_field(0.95, Real(low=0, high=1))
    entropy_coef: float = spec_field(0.05, Real(low=0))
    entropy_coef_end: float | None = spec_field(0.01, Real(low=0, null="constant"))
    entropy_anneal_rounds: int = spec_field(40, Int(low=0))
    entropy_coef_head: tuple[float, ...] = spec_field(_FACTORS.defaults, _FACTORS)
    value_coef: float = spec_field(0.5, Real(low=0))
    value_warmup_rounds: int = spec_field(0, Int(low=0))
    price_warmup_rounds: int = spec_field(0, Int(low=0))  # in which prices of instances rise
    contribution_coef: float = spec_field(0.0, Real(low=0))  # 0: no such head
    max_grad_norm: float | None = spec_field(1.0, Real(above=0, null="no clipping"))
    weight_decay: float = spec_field(0.0, Real(low=0))


@dataclass(frozen=True)
class EngineSpec(Spec):
    """Devices, threads and compile mode of a run."""

    PATH: ClassVar[str] = "engine"

    devices: tuple[str, ...] = spec_field(("auto",), Names(least=1, most=1))
    threads: int | None = spec_field(None, Int(low=1, high=4_096, null="one per core"))
    compile: str = spec_field(COMPILE_OFF, Choice(names=_MODES))
    max_graphs: int = spec_field(32, Int(low=1, high=1_024))  # sizes of plans that are compiled; others run eager
    phase_profile: bool = spec_field(True, Flag())  # where the time of each round goes

    def cross_checks(self) -> list[str]:
        """Every device has a name that can exist; whether it does is found out when it is opened."""
        known = [one for one in self.devices if one in ("auto", "cpu", "cuda") or _CUDA.fullmatch(one)]
        wrong = [one for one in self.devices if one not in known]
        return [f"engine.devices is {format_value(one)}; want auto, cpu, cuda or cuda:0 .. cuda:99" for one in wrong]


@dataclass(frozen=True)
class CheckpointSpec(Spec):
    """Frequency and retention of checkpoints."""

    PATH: ClassVar[str] = "checkpoint"

    every_rounds: int | None = spec_field(10, Int(low=1, null="only at the end"))
    every_minutes: float | None = spec_field(None, Real(above=0, null="not by the clock"))  # also inside a round
    keep: int = spec_field(3, Int(low=1, high=1_000))  # newest ones; the best one stays besides
    on_failure: str = spec_field(CONTINUE, Choice(names=(CONTINUE, STOP)))  # where one but the last cannot be written
