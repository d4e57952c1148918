"""The constants of the legacy reward rules, as the original had them."""

from typing import Annotated, ClassVar, Literal

from morphogen.config.fields import Count, Natural, NonNegative, Null, Positive, Share, Spec, option, spec


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
