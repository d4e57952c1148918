"""The constants of the legacy reward rules, as the original had them."""

from dataclasses import dataclass
from typing import ClassVar

from morphogen.config.fields import Choice, Flag, Int, Real, Spec, spec_field

SHARE, WEIGHT = Real(low=0, high=1), Real(low=0)


@dataclass(frozen=True)
class LegacyRewardSpec(Spec):
    """Weights, caps and switches of the legacy kernels; a rule reads those of its parts."""

    PATH: ClassVar[str] = "reward.legacy"

    contribution_weight: float = spec_field(1.0, WEIGHT)
    proxy_weight: float = spec_field(0.3, WEIGHT)  # of progress within a stage, where no contribution was measured
    pbrs_weight: float = spec_field(0.3, WEIGHT)
    stage_progress: float = spec_field(0.3, WEIGHT)  # potential per epoch in a stage ...
    stage_progress_cap: float = spec_field(2.0, WEIGHT)  # ... and its limit
    combine: str = spec_field("harmonic", Choice(names=("harmonic", "minimum")))
    ratio_threshold: float = spec_field(5.0, Real(above=0))
    discount_steepness: float = spec_field(3.0, WEIGHT)
    escrow_clip: float = spec_field(2.0, WEIGHT)  # 0: none
    rent_weight: float = spec_field(0.5, WEIGHT)
    rent_cap: float = spec_field(1.5, WEIGHT)
    host_params_floor: int = spec_field(200, Int(low=1))
    slot_rent_ratio: float = spec_field(0.0039, WEIGHT)  # of the host's parameters, for every blended seed
    shock_weight: float = spec_field(0.1958, WEIGHT)
    shock_cap: float = spec_field(1.0, WEIGHT)
    free_slots: int = spec_field(1, Int(low=0))
    warmup_epochs: int = spec_field(10, Int(low=0))  # 0: no discount of early germination
    warmup_floor: float = spec_field(0.4, SHARE)
    basic_terminal_weight: float = spec_field(5.0, WEIGHT)
    basic_bonus_scale: float = spec_field(0.5, WEIGHT)
    param_budget: int = spec_field(500_000, Int(low=1))  # of basic and basic_plus, whatever the task
    param_price: float = spec_field(0.1, WEIGHT)
    drip_fraction: float = spec_field(None, Real(low=0, high=1, null="0, basic_plus 0.7"))
    drip_cap: float = spec_field(0.1, WEIGHT)
    drip_negative_ratio: float = spec_field(0.5, WEIGHT)
    drip_min_epochs: int = spec_field(5, Int(low=1))
    use_pbrs: bool = spec_field(True, Flag())
    use_terminal: bool = spec_field(True, Flag())
    use_anti_gaming: bool = spec_field(True, Flag())
    use_timing: bool = spec_field(True, Flag())
