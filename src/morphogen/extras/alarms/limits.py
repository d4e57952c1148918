"""Settings `telemetry.limits` of the alarms."""

from typing import ClassVar

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import NonNegative, spec


@spec
class AlarmLimits(ExtraSpec):
    """Limits of the alarms; every comparison is strict.

    Example:
        >>> import morphogen as mg
        >>> mg.TelemetrySpec(limits={"kl_spike": -1})
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: telemetry.limits.kl_spike: expected a number greater than or
            equal to 0, got -1
    """

    PATH: ClassVar[str] = "telemetry.limits"

    ratio_explosion: NonNegative = 5.0
    """probability ratio above it is an alarm"""
    ratio_collapse: NonNegative = 0.1
    """probability ratio below it is an alarm"""
    kl_extreme: NonNegative = 0.5
    """divergence in nats that is an error"""
    kl_spike: NonNegative = 0.1
    """divergence in nats that is a warning"""
    value_loss: NonNegative = 5.0
    """loss of the critic, on the scale of normalised returns"""
    td_error: NonNegative = 5.0
    """mean absolute error of one-step values, on that scale"""
    entropy_op: NonNegative = 0.08
    """entropy of the head op, as a share of its first one, below which it is collapsed"""
    entropy_slot: NonNegative = 0.1
    """entropy of the head slot, as a share of its first one, below which it is collapsed"""
    entropy_blueprint: NonNegative = 0.05
    """entropy of the head blueprint, as a share of its first one, below which it is collapsed"""
    entropy_style: NonNegative = 0.08
    """entropy of the head style, as a share of its first one, below which it is collapsed"""
    entropy_tempo: NonNegative = 0.05
    """entropy of the head tempo, as a share of its first one, below which it is collapsed"""
    entropy_alpha_target: NonNegative = 0.08
    """entropy of the head alpha_target, as a share of its first one, below which it is collapsed"""
    entropy_alpha_speed: NonNegative = 0.08
    """entropy of the head alpha_speed, as a share of its first one, below which it is collapsed"""
    entropy_alpha_curve: NonNegative = 0.08
    """entropy of the head alpha_curve, as a share of its first one, below which it is collapsed"""
    entropy_clear: NonNegative = 1.5
    """times the limit of a head above which its collapse is over"""
    entropy_rounds: NonNegative = 3.0
    """consecutive rounds below the limit that are a collapse"""
    entropy_until: NonNegative = 0.5
    """share of the run after which a decided policy is no alarm"""
    frozen_kl: NonNegative = 1e-06
    """divergence in nats below which an update moved nothing"""
    frozen_rounds: NonNegative = 3.0
    """consecutive rounds without a move that are an alarm"""
    critic_variance: float = 0.05
    """share of the variance of returns below which a critic explains nothing"""
    critic_rounds: NonNegative = 10.0
    """consecutive rounds in which it explains nothing that are an alarm"""
    return_gap: NonNegative = 0.5
    """deviations between the returns of the rewards and of the learner"""
    return_rounds: NonNegative = 3.0
    """consecutive rounds with such a gap that are an alarm"""
    gradient_drift: NonNegative = 4.0
    """gradient norm over its running average"""
    hidden_explosion: NonNegative = 10.0
    """root mean square of the memory above it is an alarm"""
    hidden_vanishing: NonNegative = 1e-06
    """root mean square of the memory below it is an alarm"""
    behaviour_gap: NonNegative = 0.001
    """nats between the recorded and the recomputed log-probabilities"""
    observation_clipped: NonNegative = 0.01
    """share of features that are clipped"""
    young_rounds: NonNegative = 2.0
    """first rounds without judgement of drift and clipping"""
    envs_nonfinite: NonNegative = 0.0
    """share of envs with skipped steps"""
    rollbacks: NonNegative = 0.25
    """rollbacks per env in a round"""
    wait_only: NonNegative = 0.95
    """share of WAIT among the steps with a choice"""
    wait_rounds: NonNegative = 3.0
    """consecutive rounds of waiting that are reported"""
    memory: NonNegative = 0.85
    """reserved share of the memory of a device"""
    memory_rounds: NonNegative = 10.0
    """rounds from one warning about memory to the next"""
    drop_progress: NonNegative = 0.1
    """share of the run before which no drop is reported"""
    drop: NonNegative = 0.1
    """fall of the rolling accuracy, as its share"""
