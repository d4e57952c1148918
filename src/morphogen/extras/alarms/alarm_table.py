"""The table of alarms: limits on the numbers of a round."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple

from morphogen.log.events import Envelope
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.vocab.action import HEADS

Numbers = Mapping[str, float]
INFO = "info"
WARNING = "warning"
ERROR = "error"


class Alarm(NamedTuple):
    """Row of the table: the metric is beyond the limit for some consecutive rounds.

    Of the alarms with one `group`, by default kind and subject, at most the first that fires is
    reported.
    """

    kind: str
    metric: str
    op: str  # > or <; nan: the number is not finite
    limit: str | float = 0.0  # number, or name of a setting
    rounds: str = ""  # setting with the number of rounds; empty: one round
    subject: str | None = None
    severity: str = WARNING
    group: str = ""


def _is_not_finite(number: float, limit: float) -> bool:
    return not math.isfinite(number)


BEYOND: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "nan": _is_not_finite,
}
_RATIOS = [
    Alarm("ratio_nonfinite", name, "nan", subject=name, severity=ERROR, group="ratio")
    for name in ("ratio_max", "ratio_min")
]
_CRITIC = [
    Alarm("value_collapse", f"learned_{name}", ">", limit, subject=name, group="critic")
    for name, limit in (("value_loss", "value_loss"), ("td_error_abs_mean", "td_error"))
]
_HIDDEN = [
    Alarm(f"hidden_{kind}", f"hidden.{part}_{metric}", op, limit, "", part, severity)
    for part in ("h", "c")
    for kind, metric, op, limit, severity in (
        ("nonfinite", "nonfinite", ">", 0.0, ERROR),
        ("explosion", "env_rms_max", ">", "hidden_explosion", WARNING),
        ("vanishing", "rms", "<", "hidden_vanishing", WARNING),
    )
]
_ENTROPIES = [
    *(
        Alarm("entropy_nonfinite", f"entropy_head.{head}", "nan", subject=head, severity=ERROR)
        for head in HEADS
    ),
    *(
        Alarm(
            "entropy_collapse",
            f"entropy_head.{head}",
            "<",
            f"entropy_{head}",
            "entropy_rounds",
            subject=head,
        )
        for head in HEADS
    ),
]
ALARMS = (
    *_RATIOS,
    Alarm("ratio_explosion", "moved_ratio_max", ">", "ratio_explosion"),
    Alarm("ratio_collapse", "moved_ratio_min", "<", "ratio_collapse"),
    Alarm("kl_extreme", "kl", ">", "kl_extreme", severity=ERROR, group="kl"),
    Alarm("kl_spike", "kl", ">", "kl_spike", group="kl"),
    *_CRITIC,
    Alarm("update_skipped", "skip_streak", ">"),
    Alarm("behaviour_gap", "behaviour_gap", ">", "behaviour_gap", severity=ERROR),
    *_HIDDEN,
    Alarm("envs_nonfinite", "envs_skipped", ">", "envs_nonfinite"),
    Alarm("rollbacks", "rollbacks", ">", "rollbacks"),
    *_ENTROPIES,
    Alarm("policy_frozen", "applied_kl", "<", "frozen_kl", "frozen_rounds"),
    Alarm("critic_blind", "explained_variance", "<", "critic_variance", "critic_rounds"),
    Alarm("return_mismatch", "return_gap", ">", "return_gap", "return_rounds"),
    Alarm("wait_only", "wait_share", ">", "wait_only", "wait_rounds", severity=INFO),
    Alarm("gradient_drift", "gradient_drift", ">", "gradient_drift"),
    Alarm("observation_clipped", "settled_clip_share", ">", "observation_clipped"),
)


def update_numbers(update: Numbers, kl_spike: float) -> dict[str, float]:
    """Numbers of an update under conditions; a number whose condition does not hold is left out.

    The ratio of an action is the product of the ratios of its heads, and clipping bounds the
    gradient of each head, not the product: among thousands of steps some ratios are far from 1 in a
    healthy update.  They count together with a KL, their mean effect, above its limit, and where
    the KL is not measured.
    """
    numbers = dict(update)
    ratios = {name: update[name] for name in ("ratio_max", "ratio_min") if name in update}
    if update.get("kl", math.inf) > kl_spike and all(map(math.isfinite, ratios.values())):
        numbers |= {f"moved_{name}": ratio for name, ratio in ratios.items()}
    if update.get("free_steps", 0) > 0:
        learned = ("value_loss", "td_error_abs_mean")
        numbers |= {f"learned_{name}": update[name] for name in learned if name in update}
    if update.get("steps_done", 0) > 0 and "kl" in update:
        numbers["applied_kl"] = update["kl"]
    return numbers


def judge(
    numbers: Numbers, limits: Numbers, streaks: dict[str, int], *, round: int, calm: bool = False
) -> list[Envelope]:
    """Return the findings of a round, and update the streaks: consecutive rounds by metric.

    The streak of a metric ends where it is clear of the limit, for entropies `entropy_clear` times
    the limit.
    calm: the policy as a whole still has a choice, or may be decided: a collapsed head is no alarm.
    """
    findings: dict[tuple[str, str | None], Envelope] = {}  # by group
    for alarm in ALARMS:
        number = numbers.get(alarm.metric)
        if number is None:
            continue
        limit = limits[alarm.limit] if isinstance(alarm.limit, str) else alarm.limit
        beyond = BEYOND[alarm.op](number, limit)
        is_entropy = alarm.kind == "entropy_collapse"
        streak = 0
        if alarm.rounds:
            clear = limit * (limits["entropy_clear"] if is_entropy else 1.0)
            is_clear = number > clear if alarm.op == "<" else number < clear
            if math.isfinite(number) and is_clear:
                streaks[alarm.metric] = 0
            else:
                streaks[alarm.metric] = streak = streaks.get(alarm.metric, 0) + beyond
            beyond = beyond and streak >= max(limits[alarm.rounds], 1)
        if beyond:
            shown = None if alarm.op == "nan" else limit
            event = AnomalyDetected(alarm.kind, number, shown, alarm.subject, streak)
            severity = INFO if calm and is_entropy else alarm.severity
            group = (alarm.group, None) if alarm.group else (alarm.kind, alarm.subject)
            findings.setdefault(group, Envelope(event, round=round, severity=severity))
    return list(findings.values())
