"""PpoUpdated: measurements of one policy update.  `ppo.metrics` says how they are reduced over
minibatches.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Strict

from morphogen.log.events import Real, RoundEvent, field_names, tidy

Heads = dict[str, Real] | None  # per head of the action
# of floats, as which metrics are measured
Whole = Annotated[int, Strict(False)]
Flag = Annotated[bool, Strict(False)]


class PpoUpdated(RoundEvent, kw_only=True):
    """One update; None = not measured.  `*_head` hold a number per head of the action."""

    policy_loss: Real = None
    value_loss: Real = None
    entropy: Real = None  # nats, of the factored policy
    entropy_head: Heads = None  # 0..1
    kl: Real = None  # nats
    clip_share: Real = None
    clip_share_head: Heads = None
    ratio_max: Real = None
    ratio_min: Real = None
    behaviour_gap: Real = None  # nats, before the first step
    epochs_done: Whole | None = None
    stopped_by_kl: Flag | None = None
    steps_done: Whole | None = None
    steps_skipped: Whole | None = None
    skip_streak: Whole | None = None  # rounds
    explained_variance: Real = None
    value_mean: Real = None
    value_std: Real = None
    return_mean: Real = None
    return_std: Real = None
    advantage_mean: Real = None  # before normalisation
    advantage_std: Real = None
    td_error_abs_mean: Real = None
    gradient_norm: Real = None  # before clipping
    gradient_norm_head: Heads = None
    clipped_share: Real = None
    contribution_loss: Real = None
    contribution_targets: Whole | None = None
    learning_rate: Real = None
    entropy_coef: Real = None
    value_coef: Real = None
    return_scale: Real = None
    value_offset: Real = None
    free_steps: Whole | None = None  # steps of the rollout with more than one choice
    forced_share: Real = None
    rollback_rows: Whole | None = None
    nonfinite: dict[str, Whole] | None = None  # source -> count
    layer_health: Heads = None  # leaf of the policy -> 0..1, of its gradient
    update_s: Real = None


def ppo_event(metrics: Mapping[str, Any], **more: Any) -> PpoUpdated:
    """The event of an update out of its flat metrics: `NAME` or `NAME.PART`, each with an optional
    flag `..._valid`.

    Names that the event does not have are left out; what is missing, not valid or not finite is
    None, the last counted as `nonfinite.metric`.
    """
    values: dict[str, Any] = {}
    broken = 0
    for key, metric in metrics.items():
        name, _, part = key.partition(".")
        if name not in field_names(PpoUpdated) or key.endswith("_valid"):
            continue
        number = None
        if metrics.get(f"{key}_valid", True):
            number = tidy(metric)
            broken += number is None
        if part:
            values.setdefault(name, {})[part] = number
        else:
            values[name] = number
    nonfinite = {**values.pop("nonfinite", {}), "metric": broken}
    return PpoUpdated(**values, nonfinite=nonfinite, **more)
