"""PpoUpdated: measurements of one policy update.  `ppo.metrics` says how they are reduced over
minibatches.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from morphogen.log.events import RoundEvent, tidy
from morphogen.log.type_check import Real

Heads = dict[str, Real] | None  # per head of the action


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
    epochs_done: int | None = None
    stopped_by_kl: bool | None = None
    steps_done: int | None = None
    steps_skipped: int | None = None
    skip_streak: int | None = None  # rounds
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
    contribution_targets: int | None = None
    learning_rate: Real = None
    entropy_coef: Real = None
    value_coef: Real = None
    return_scale: Real = None
    value_offset: Real = None
    free_steps: int | None = None  # steps of the rollout with more than one choice
    forced_share: Real = None
    rollback_rows: int | None = None
    nonfinite: dict[str, int] | None = None  # source -> count
    layer_health: Heads = None  # leaf of the policy -> 0..1, of its gradient
    update_s: Real = None


def _number_type(kind: Any) -> type:
    """Return the type of a number, or of the values of a mapping: float, int or bool."""
    while parts := get_args(kind):
        kind = parts[1] if get_origin(kind) is dict else parts[0]
    return kind


_HINTS = get_type_hints(PpoUpdated)
_NUMBER_TYPES = {item.name: _number_type(_HINTS[item.name]) for item in fields(PpoUpdated)}


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
        if name not in _NUMBER_TYPES or key.endswith("_valid"):
            continue
        number = None
        if metrics.get(f"{key}_valid", True):
            number = tidy(metric)
            broken += number is None
        if number is not None:
            number = _NUMBER_TYPES[name](number)
        if part:
            values.setdefault(name, {})[part] = number
        else:
            values[name] = number
    nonfinite = {**values.pop("nonfinite", {}), "metric": broken}
    return PpoUpdated(**values, nonfinite=nonfinite, **more)
