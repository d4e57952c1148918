"""The table of alarms: limits on the numbers of a round."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from morphogen.log.events import Envelope, Severity
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.vocab.action import HEADS

Numbers = Mapping[str, float]


class Alarm(NamedTuple):
    """Row of the table: the metric is beyond the limit for some consecutive rounds."""

    kind: str
    metric: str
    op: str  # > or <; nan: the number is not finite
    limit: str | None  # setting; None: 0
    rounds: str | None  # setting with the number of rounds; None: one round
    severity: Severity
    subject: str | None = None
    group: str | None = (
        None  # of which the first alarm that fires is reported; None: kind and subject
    )


# The fields of each alarm: - is None, like what is left out, and HEAD every head of the action.
ROWS = """
ratio_nonfinite ratio_max nan - - error ratio_max ratio
ratio_nonfinite ratio_min nan - - error ratio_min ratio
ratio_explosion     moved_ratio_max      >   ratio_explosion     -              warning
ratio_collapse      moved_ratio_min      <   ratio_collapse      -              warning
kl_extreme          kl                   >   kl_extreme          -              error   - kl
kl_spike            kl                   >   kl_spike            -              warning - kl
value_collapse learned_value_loss > value_loss - warning value_loss critic
value_collapse learned_td_error > td_error - warning td_error_abs_mean critic
update_skipped      skip_streak          >   -                   -              warning
behaviour_gap       behaviour_gap        >   behaviour_gap       -              error
hidden_nonfinite    hidden.h_nonfinite   >   -                   -              error   h
hidden_explosion    hidden.h_env_rms_max >   hidden_explosion    -              warning h
hidden_vanishing    hidden.h_rms         <   hidden_vanishing    -              warning h
hidden_nonfinite    hidden.c_nonfinite   >   -                   -              error   c
hidden_explosion    hidden.c_env_rms_max >   hidden_explosion    -              warning c
hidden_vanishing    hidden.c_rms         <   hidden_vanishing    -              warning c
envs_nonfinite      envs_skipped         >   envs_nonfinite      -              warning
rollbacks           rollbacks            >   rollbacks           -              warning
entropy_nonfinite   entropy_head.HEAD    nan -                   -              error   HEAD
entropy_collapse    entropy_head.HEAD    <   entropy_HEAD        entropy_rounds warning HEAD
policy_frozen       applied_kl           <   frozen_kl           frozen_rounds  warning
critic_blind        explained_variance   <   critic_variance     critic_rounds  warning
return_mismatch     return_gap           >   return_gap          return_rounds  warning
wait_only           wait_share           >   wait_only           wait_rounds    info
gradient_drift      gradient_drift       >   gradient_drift      -              warning
observation_clipped settled_clip_share   >   observation_clipped -              warning
"""


def _read_rows(text: str) -> Iterator[Alarm]:
    for line in text.strip().splitlines():
        for head in HEADS if "HEAD" in line else ("",):
            words = line.replace("HEAD", head).split()
            cells: list[Any] = [None if word == "-" else word for word in words]
            yield Alarm(*cells)


ALARMS = tuple(_read_rows(ROWS))


BEYOND: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "nan": lambda number, limit: not math.isfinite(number),
}


def update_numbers(update: Numbers, kl_spike: float) -> dict[str, float]:
    """Numbers of an update under conditions; a number whose condition does not hold is left out.

    The ratio of an action is the product of the ratios of its heads, and clipping bounds the
    gradient of each head, not the product: among thousands of steps some ratios are far from 1 in a
    healthy update.  They count together with a KL, their mean effect, above its limit, and where
    the KL is not measured.
    """
    ratios = [update[name] for name in ("ratio_max", "ratio_min") if name in update]
    has_moved = update.get("kl", math.inf) > kl_spike and all(map(math.isfinite, ratios))
    has_learned = update.get("free_steps", 0) > 0
    conditions = {
        "moved_ratio_max": ("ratio_max", has_moved),
        "moved_ratio_min": ("ratio_min", has_moved),
        "learned_value_loss": ("value_loss", has_learned),
        "learned_td_error": ("td_error_abs_mean", has_learned),
        "applied_kl": ("kl", update.get("steps_done", 0) > 0),
    }
    return dict(update) | {
        name: update[metric]
        for name, (metric, holds) in conditions.items()
        if holds and metric in update
    }


def judge(
    numbers: Numbers, limits: Numbers, streaks: dict[str, int], *, round: int, calm: bool = False
) -> list[Envelope]:
    """Return the findings of a round, and update the streaks: consecutive rounds by metric.

    The streak of a metric ends where it is clear of the limit, for entropies `entropy_clear` times
    the limit.
    calm: the policy as a whole still has a choice, or may be decided: a collapsed head is no alarm.
    """
    findings: dict[str | tuple[str, str | None], Envelope] = {}  # by group
    for alarm in ALARMS:
        number = numbers.get(alarm.metric)
        if number is None:
            continue
        limit = limits[alarm.limit] if alarm.limit else 0.0
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
            severity: Severity = "info" if calm and is_entropy else alarm.severity
            group = alarm.group or (alarm.kind, alarm.subject)
            findings.setdefault(group, Envelope(event, round=round, severity=severity))
    return list(findings.values())
