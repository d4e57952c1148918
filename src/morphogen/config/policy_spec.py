"""The policy network and its update by PPO."""

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from morphogen.config.fields import (
    DERIVED,
    UNSET,
    Checks,
    Count,
    Natural,
    NonNegative,
    OneOf,
    Positive,
    PositiveShare,
    Share,
    Spec,
    spec,
)
from morphogen.config.parts import NETWORKS
from morphogen.vocab.action import SIZES

HalfShare = Annotated[float, Field(ge=0, le=0.5)]


class HeadFloors(NamedTuple):
    """Floor under the probability of each legal choice, per head; at most half of the probability
    in all.
    """

    op: HalfShare = 0.005
    slot: HalfShare = 0.01
    blueprint: HalfShare = 0.01
    style: HalfShare = 0.01
    tempo: HalfShare = 0.01
    alpha_target: HalfShare = 0.01
    alpha_speed: HalfShare = 0.01
    alpha_curve: HalfShare = 0.01


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

    An untrained policy lets seeds live and keeps them, so that returns of complete lives are
    observed.
    """

    WAIT: LogOdds = 0.0
    GERMINATE: LogOdds = 0.0
    SET_ALPHA_TARGET: LogOdds = -2.0
    PRUNE: LogOdds = -3.0
    FOSSILIZE: LogOdds = 1.0
    ADVANCE: LogOdds = 0.0


@spec
class PolicySpec(Spec):
    """The policy network and its probabilities before training.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.PolicySpec(hidden=16, floor={"op": 0.01})
        >>> spec.floor.op, spec.floor.tempo
        (0.01, 0.01)
        >>> mg.PolicySpec(
        ...     floor={"op": 0.5}
        ... )  # floors of 6 ops: at most half of the probability in all
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: policy.floor.op: expected <= 0.0833333 with
            6 choices, got 0.5
    """

    PATH: ClassVar[str] = "policy"

    network: Annotated[str, OneOf(NETWORKS)] = "lstm"
    """network of a trained policy; the settings below belong to lstm, but for floor"""
    hidden: Annotated[int, Field(ge=8, le=4_096)] = 128
    """width of the memory and the layers of the policy"""
    blueprint_dim: Annotated[int, Field(ge=1, le=64)] = 4
    """width of the embedding of a blueprint"""
    memory: bool = True
    """carry the memory from epoch to epoch, or begin each with an empty one"""
    floor: HeadFloors = HeadFloors()
    op_bias: OpBias = OpBias()
    full_bias: LogOdds = 2.0
    """log-odds of the alpha target FULL before training"""

    def cross_checks(self) -> Checks:
        """Floors take at most half of the probability; a run checks the slots, which it counts."""
        return {
            f"floor.{head.label}": (
                self.floor[head] <= 0.5 / size,
                f"<= {0.5 / size:g} with {size} choices",
            )
            for head, size in SIZES.items()
        }


@spec
class PpoSpec(Spec):
    """The update of the policy.  Schedules count rounds.

    Raises: ConfigError with all faults, a line each.

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms (2017); advantages: J.
    Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation
    (2016).

    Example:
        >>> import morphogen as mg
        >>> mg.PpoSpec(clip=0.1).clip
        0.1
        >>> mg.PpoSpec(gamma=1.5, epochs=0)
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: ppo.epochs: expected a number
            greater than or equal to 1, got 0
        ppo.gamma: expected a number less than or equal to 1, got 1.5
    """

    PATH: ClassVar[str] = "ppo"

    epochs: Annotated[int, Field(ge=1, le=1_000)] = 4
    """passes over a round in the update of the policy"""
    minibatches: Annotated[Count, DERIVED] = UNSET
    """minibatches per pass, each a group of envs with complete episodes; null = gcd(4, envs)"""
    lr: Positive = 1e-3
    """learning rate of the policy"""
    lr_end: Positive | None = None
    """learning rate at the end of its schedule; null = constant"""
    lr_anneal_rounds: Natural = 0
    """rounds until lr_end is reached"""
    ratio: Literal["head", "joint"] = "head"
    """clip the probability ratio of each head, or of the action"""
    clip: PositiveShare = 0.2
    """clip range of the probability ratio"""
    target_kl: Positive | None = 0.03
    """divergence in nats; an update stops at 1.5 times of it; null = no stop"""
    gamma: PositiveShare = 0.995
    """discount per epoch"""
    gae_lambda: Share = 0.95
    """decay of the advantage estimate per epoch"""
    entropy_coef: NonNegative = 0.05
    """entropy coefficient in the first round"""
    entropy_coef_end: NonNegative | None = 0.01
    """entropy coefficient after entropy_anneal_rounds; null = constant"""
    entropy_anneal_rounds: Natural = 40
    """rounds until the entropy coefficient is least"""
    entropy_coef_head: HeadFactors = HeadFactors()
    value_coef: NonNegative = 0.5
    """weight of the critic's loss"""
    value_warmup_rounds: Natural = 0
    """rounds until the critic counts in full"""
    world_envs: Count = 1
    """consecutive envs that play the same world after imitation, for the mean advantage of the
    others to be subtracted; 1 = each its own
    """
    imitation_rounds: Natural = 0
    """rounds at the start in which the heuristic acts and the policy learns to imitate it"""
    imitation_limit: PositiveShare = 1.0
    """probability above which imitation leaves an action alone, so that others are still tried"""
    price_warmup_rounds: Natural = 0
    """rounds in which prices of training instances rise to their range"""
    contribution_coef: NonNegative = 0.0
    """weight of a head that predicts contributions; 0 = no such head"""
    max_grad_norm: Positive | None = 1.0
    """limit of the gradient norm of the policy; null = no clipping"""
    weight_decay: NonNegative = 0.0
    """weight decay of the policy"""
