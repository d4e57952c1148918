"""Kinds of events with statistics of a round."""

from typing_extensions import TypedDict

from morphogen.log.events import Count, Positive, Real, RoundEvent, Share


class ActionCounts(RoundEvent):
    """Actions of a round; counts of steps of an env."""

    sampled: dict[str, Count]  # op ->
    effective: dict[str, Count]  # op -> that took effect; WAIT for what did not
    succeeded: dict[str, Count]  # op -> executed
    heads: dict[str, dict[str, Count]]  # head -> value ->, where the op uses the head
    outcomes: dict[str, Count]
    reasons: dict[str, Count]  # why not executed
    forced: Count  # there was one choice
    missed: Count  # declared, but not legal


class MaskHitRates(RoundEvent):
    """Legal choices of a round."""

    legal_share: dict[str, Share]  # op -> of the steps
    choices_mean: dict[str, Positive]  # head -> legal values, where the op uses the head
    single_share: dict[str, Share]  # head -> of those steps, that have one legal value


class RewardSpread(TypedDict):
    """A reward over the steps of a round; `sum`: of an episode, mean over episodes."""

    mean: Real
    std: Real
    min: Real
    max: Real
    sum: Real


class RewardSummary(RoundEvent):
    """Rewards of a round."""

    components: dict[str, RewardSpread]
    total: RewardSpread


class ObservationStats(RoundEvent):
    """Statistics of observations of a round; numbers that are not finite count as 0."""

    nonfinite_share: Share
    host_mean: Real  # raw features, by block
    host_std: Positive
    feedback_mean: Real
    feedback_std: Positive
    slot_mean: Real
    slot_std: Positive
    outlier_share: Share  # further than 3 standard deviations from the mean of their feature
    near_clip_share: Share  # normalised, at 9 or beyond
    clip_share: Share  # normalised, at the clip
    drift: Positive  # of the normaliser since the first round


class HiddenHealth(RoundEvent):
    """The memory of the policy at the last epoch of a round."""

    h_rms: Positive
    h_env_rms_mean: Positive
    h_env_rms_max: Positive
    h_abs_max: Positive
    h_nonfinite: Count
    c_rms: Positive
    c_env_rms_mean: Positive
    c_env_rms_max: Positive
    c_abs_max: Positive
    c_nonfinite: Count
