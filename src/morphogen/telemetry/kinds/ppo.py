"""PpoUpdated: what one policy update did.  Every field declares how it is reduced over minibatches."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from morphogen.telemetry.events import RoundEvent, tidy

# The reduction is part of the type; `once`: measured for the update as a whole.
Mean = Annotated[float | None, "mean"]
HeadMean = Annotated[dict[str, float | None] | None, "mean"]
Max = Annotated[float | None, "max"]
Min = Annotated[float | None, "min"]
First = Annotated[float | None, "first"]
Count = Annotated[int | None, "sum"]
Counts = Annotated[dict[str, int] | None, "sum"]
Flag = Annotated[bool | None, "any"]
Once = Annotated[float | None, "once"]
OnceInt = Annotated[int | None, "once"]


class PpoUpdated(RoundEvent, level="minimal", kw_only=True):
    """One update; None = not measured.  `*_head` hold a number per head of the action."""

    policy_loss: Mean = None
    value_loss: Mean = None
    entropy: Mean = None  # nats, of the factored policy
    entropy_head: HeadMean = None  # 0..1
    kl: Mean = None  # nats
    clip_share: Mean = None
    clip_share_head: HeadMean = None
    ratio_max: Max = None
    ratio_min: Min = None
    behaviour_gap: First = None  # nats, before the first step
    epochs_done: OnceInt = None
    stopped_by_kl: Flag = None
    steps_done: Count = None
    steps_skipped: Count = None
    skip_streak: OnceInt = None  # rounds
    explained_variance: Once = None
    value_mean: Once = None
    value_std: Once = None
    return_mean: Once = None
    return_std: Once = None
    advantage_mean: Once = None  # before normalisation
    advantage_std: Once = None
    td_error_abs_mean: Once = None
    gradient_norm: Mean = None  # before clipping
    gradient_norm_head: HeadMean = None
    clipped_share: Mean = None
    contribution_loss: Mean = None
    contribution_targets: OnceInt = None
    learning_rate: Once = None
    entropy_coef: Once = None
    value_coef: Once = None
    return_scale: Once = None
    value_offset: Once = None
    free_steps: OnceInt = None  # steps of the rollout with more than one choice
    forced_share: Once = None
    rollback_rows: OnceInt = None
    nonfinite: Counts = None  # source -> count
    layer_health: HeadMean = None  # leaf of the policy -> 0..1, of its gradient
    update_s: Once = None


_HINTS = get_type_hints(PpoUpdated, include_extras=True)
REDUCTION: dict[str, str] = {item.name: _HINTS[item.name].__metadata__[0] for item in fields(PpoUpdated)}
_VALUE_TYPES = {name: get_args(_HINTS[name].__origin__)[0] for name in REDUCTION}
# Type of the number of each field, or of the values of a mapping: float, int or bool.
_PLAIN_TYPES = {name: get_args(kind)[1] if get_origin(kind) is dict else kind for name, kind in _VALUE_TYPES.items()}
_NUMBER_TYPES: dict[str, type] = {name: (get_args(kind) or (kind,))[0] for name, kind in _PLAIN_TYPES.items()}


def ppo_event(metrics: Mapping[str, Any], **more: Any) -> PpoUpdated:
    """The event of an update out of its flat metrics: `NAME` or `NAME.PART`, each with an optional flag `..._valid`.

    Names that the event does not have are left out; what is missing, not valid or not finite is None, the last counted
    as `nonfinite.metric`.
    """
    values = {name: _metric_value(name, metrics) for name in REDUCTION}
    valid = [key for key in metrics if key.partition(".")[0] in REDUCTION and metrics.get(f"{key}_valid", True)]
    broken = sum(not math.isfinite(metrics[key]) for key in valid)
    return PpoUpdated(**{**values, "nonfinite": {**(values["nonfinite"] or {}), "metric": broken}, **more})


def _metric_value(name: str, metrics: Mapping[str, Any]) -> Any:
    if name in metrics:
        return _metric_number(name, metrics, _NUMBER_TYPES[name])
    keys = [key for key in metrics if key.startswith(f"{name}.") and not key.endswith("_valid")]
    return {key.removeprefix(f"{name}."): _metric_number(key, metrics, _NUMBER_TYPES[name]) for key in keys} or None


def _metric_number(key: str, metrics: Mapping[str, Any], kind: type) -> Any:
    value, valid = tidy(metrics[key]), tidy(metrics.get(f"{key}_valid", True))
    return kind(value) if valid and value is not None else None
