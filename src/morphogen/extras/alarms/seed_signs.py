"""Signs of seeds that look better than they are, derived from the record of a round."""

from functools import partial

import numpy as np

from morphogen.log.codec import Array
from morphogen.log.derive import SIGNS, EventRule, Places, Row
from morphogen.log.kinds.round import AnomalyDetected
from morphogen.log.round_record import Columns, stage_entries
from morphogen.vocab.reward import DETECTORS, RANSOM_HARM, RATIO_LIMIT
from morphogen.vocab.stage import Stage


def first_signs(columns: Columns) -> Array:
    """Return the first signs of a seed that looks better than it is, bool [T, E, S, K].

    A sign is no alarm: its limits are below the noise of a validation of few samples.
    """
    fired = columns["detectors"]
    germinated = stage_entries(columns, Stage.GERMINATED)[..., None]
    reported = np.zeros_like(fired[0])
    first = np.zeros_like(fired)
    for epoch in range(len(fired)):
        reported &= ~germinated[epoch]
        first[epoch] = fired[epoch] & ~reported
        reported |= fired[epoch]
    return first


def _is_sign(kind: int, columns: Columns) -> Array:
    return first_signs(columns)[..., kind]


def _sign_fields(name: str, places: Places) -> Row:
    harm = places["val_acc"].astype(np.float64) - places["committed_acc"]
    is_ratio = name == "attribution_ratio"
    return {
        "kind": name,
        "value": places["detector_ratio"] if is_ratio else harm,
        "limit": RATIO_LIMIT if is_ratio else RANSOM_HARM,
        "subject": None,
        "streak": 0,
    }


RULES = tuple(
    EventRule(
        AnomalyDetected,
        (SIGNS, 0),
        partial(_is_sign, kind),
        partial(_sign_fields, name),
        severity="info",
    )
    for kind, name in enumerate(DETECTORS)
)
