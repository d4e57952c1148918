"""PpoUpdated: what one policy update did.  Every field declares how it is reduced over minibatches."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, get_type_hints

from morphogen.run.telemetry.events import Event, Json, tidy
from morphogen.vocab.action import HEADS

# The reduction is part of the type.
Mean = Annotated[float | None, "mean"]
HeadMean = Annotated[Json | None, "mean"]
Max = Annotated[float | None, "max"]
Min = Annotated[float | None, "min"]
Count = Annotated[int | None, "sum"]
Counts = Annotated[Json | None, "sum"]
Flag = Annotated[bool | None, "any"]
Last = Annotated[float | None, "last"]
Whole = Annotated[int | None, "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoUpdated(Event):
    """One update; None = not measured.  `*_head` hold a number per head of the action."""

    LIFECYCLE: ClassVar[bool] = False

    policy_loss: Mean = None
    value_loss: Mean = None
    entropy: Mean = None  # nats, of the factored policy
    entropy_head: HeadMean = None  # 0..1
    kl: Mean = None  # nats
    clip_share: Mean = None
    clip_share_head: HeadMean = None
    ratio_max: Max = None
    ratio_min: Min = None
    behaviour_gap: Max = None  # nats, before the first step
    epochs_done: Count = None
    stopped_by_kl: Flag = None
    steps_done: Count = None
    steps_skipped: Count = None
    skip_streak: Whole = None  # rounds
    explained_variance: Last = None
    value_mean: Mean = None
    value_std: Mean = None
    return_mean: Mean = None
    return_std: Mean = None
    advantage_mean: Mean = None  # before normalisation
    advantage_std: Mean = None
    td_error_abs_mean: Mean = None
    gradient_norm: Mean = None  # before clipping
    gradient_norm_head: HeadMean = None
    clipped_share: Mean = None
    contribution_loss: Mean = None
    contribution_targets: Count = None
    learning_rate: Last = None
    entropy_coef: Last = None
    value_coef: Last = None
    return_scale: Last = None
    value_offset: Last = None
    free_steps: Whole = None  # steps of the rollout with more than one choice
    forced_share: Last = None
    rollback_rows: Whole = None
    nonfinite: Counts = None  # source -> count
    update_s: Last = None


_HINTS = get_type_hints(PpoUpdated, include_extras=True)
REDUCTION: dict[str, str] = {one.name: _HINTS[one.name].__metadata__[0] for one in fields(PpoUpdated)}


def ppo_updated(metrics: Mapping[str, Any], **more: Any) -> PpoUpdated:
    """The event of an update out of its flat metrics: `NAME` with an optional flag `NAME_valid`.

    Arrays over the heads become a mapping by head name; names the event does not have are left out.
    """
    known = {name: _metric(name, metrics) for name in REDUCTION if name in metrics}
    return PpoUpdated(**{**known, **more})


def _metric(name: str, metrics: Mapping[str, Any]) -> Any:
    value, valid = tidy(metrics[name]), tidy(metrics.get(f"{name}_valid", True))
    if not isinstance(value, tuple):
        return value if valid else None
    flags = valid if isinstance(valid, tuple) else (valid,) * len(value)
    return {head: one if ok else None for head, one, ok in zip(HEADS, value, flags, strict=True)}
