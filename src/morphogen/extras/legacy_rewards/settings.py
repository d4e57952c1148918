"""Settings of the legacy reward rules."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import (
    DERIVED,
    UNSET,
    Count,
    Natural,
    NonNegative,
    Positive,
    Share,
    is_unset,
    spec,
)

if TYPE_CHECKING:
    from morphogen.config.groups import RewardSpec

RULES = ("shaped", "escrow", "simplified", "basic", "basic_plus")
GOVERNOR_PENALTY = 10.0  # of these rules, where none is given
DRIP_FRACTION = 0.7  # of `basic_plus`, where none is given


@spec
class LegacyRewardSpec(ExtraSpec):
    """Weights, caps and switches of the legacy kernels; a rule reads the ones of its parts."""

    PATH: ClassVar[str] = "reward.legacy"

    contribution_weight: NonNegative = 1.0
    """weight of the contribution of a seed"""
    proxy_weight: NonNegative = 0.3
    """reward per point of progress within a stage, where no contribution was measured"""
    pbrs_weight: NonNegative = 0.3
    """weight of the potential of stages"""
    stage_progress: NonNegative = 0.3
    """potential per epoch in a stage"""
    stage_progress_cap: NonNegative = 2.0
    """limit of the potential of the epochs in a stage"""
    combine: Literal["harmonic", "minimum"] = "harmonic"
    """mean of contribution and progress: harmonic, or the minimum"""
    ratio_threshold: Positive = 5.0
    """contribution over the gain of the uncommitted seeds from which credit is fined"""
    discount_steepness: NonNegative = 3.0
    """steepness with which harm of the uncommitted seeds discounts credit"""
    escrow_clip: NonNegative = 2.0
    """most that an escrow account moves in a step; 0 = no limit"""
    rent_weight: NonNegative = 0.5
    """weight of the rent, by the logarithm of growth"""
    rent_cap: NonNegative = 1.5
    """highest rent of a step"""
    host_params_floor: Count = 200
    """smallest size of a host, in parameters, that growth is compared with"""
    slot_rent_ratio: NonNegative = 0.0039
    """rent of every blended seed, as a share of the host's parameters"""
    shock_weight: NonNegative = 0.1958
    """fine on sudden changes of alpha, per squared change"""
    shock_cap: NonNegative = 1.0
    """highest fine on sudden changes of alpha"""
    free_slots: Natural = 1
    """seeds and fossils that pay no rent for their slot"""
    warmup_epochs: Natural = 10
    """epochs until a germination has its full value; 0 = from the start"""
    warmup_floor: Share = 0.4
    """value of a germination in epoch 0, as a share"""
    basic_terminal_weight: NonNegative = 5.0
    """reward of basic rules per share of accuracy gained over the episode"""
    basic_bonus_scale: NonNegative = 0.5
    """bonus of basic rules for fossilizing, per point of combined gain"""
    param_budget: Count = 500_000
    """parameters that cost param_price in basic and basic_plus, whatever the task"""
    param_price: NonNegative = 0.1
    """price of param_budget parameters per step in basic and basic_plus"""
    drip_fraction: Annotated[Share, DERIVED] = UNSET
    """share of the bonus for fossilizing that is paid out over the remaining epochs; null = 0,
    basic_plus 0.7
    """
    drip_cap: NonNegative = 0.1
    """highest pay-out of the drip in a step"""
    drip_negative_ratio: NonNegative = 0.5
    """limit of negative pay-outs of the drip, as a share of drip_cap"""
    drip_min_epochs: Count = 5
    """fewest epochs over which the drip is paid out"""
    use_pbrs: bool = True
    """pay the potential of stages"""
    use_terminal: bool = True
    """pay at the end of an episode, and for legitimate fossils"""
    use_anti_gaming: bool = True
    """fine implausible credit and sudden changes of alpha"""
    use_timing: bool = True
    """discount early germination"""

    def fill_owner(self, owner: "RewardSpec") -> "RewardSpec":
        """Set the penalty for a rollback under a rule of the extra, and the share of the drip."""
        if owner.rule in RULES and is_unset(owner.governor_penalty):
            owner = replace(owner, governor_penalty=GOVERNOR_PENALTY)
        if is_unset(self.drip_fraction):
            drip = DRIP_FRACTION if owner.rule == "basic_plus" else 0.0
            owner = replace(owner, legacy=replace(self, drip_fraction=drip))
        return owner
