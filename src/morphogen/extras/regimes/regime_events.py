"""The event of a regime that begins, derived from the record of a round."""

import numpy as np

from morphogen.extras.regimes.image_view import View
from morphogen.log.codec import Array
from morphogen.log.derive import ONE_ENV, EventRule, Places, Row, by_code
from morphogen.log.events import Count, EnvEvent, Real
from morphogen.log.round_record import Columns


class RegimeBegan(EnvEvent):
    """The world of an env changed: the epoch is the first of another regime."""

    # number in the episode; 0 is the regime that the episode begins in, which has no event
    regime: Count
    view: str  # how images are shown
    classes: Count
    accuracy: Real  # in points, measured in the regime before


def _is_new_regime(columns: Columns) -> Array:
    return np.diff(columns["regime"], axis=0, prepend=0) > 0


def _fields(places: Places) -> Row:
    return {
        "view": by_code(lambda code: View(code).label, places["view_code"]),
        "accuracy": places["acc_before"],
    }


RULES = (EventRule(RegimeBegan, (ONE_ENV, 6), _is_new_regime, _fields),)
