"""The Pareto front of episodes: accuracy up, parameters down, stability up; and how much of the plane it covers."""

from collections.abc import Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """Result of an episode: its accuracy and its size."""

    accuracy: float  # committed, percent
    params_ratio: float  # of the delivered network, over the host's
    stability: float  # (0, 1]


class Reference(NamedTuple):
    """The worst accuracy and the worst ratio that still count."""

    accuracy: float = 0.0
    params_ratio: float = 2.0


REFERENCE = Reference()


def dominates(point: Point, other: Point) -> bool:
    """Nowhere worse, somewhere better."""
    nowhere_worse = (
        point.accuracy >= other.accuracy
        and point.params_ratio <= other.params_ratio
        and point.stability >= other.stability
    )
    return nowhere_worse and point != other


def pareto_front(points: Sequence[Point]) -> tuple[int, ...]:
    """Indices of the points that none dominates, ascending; equal points stay together."""
    best_first = sorted(range(len(points)), key=lambda i: (-points[i].accuracy, points[i].params_ratio, -points[i][2]))
    found: list[int] = []
    for i in best_first:  # whoever dominates a point stands before it
        if not any(dominates(points[j], points[i]) for j in found):
            found.append(i)
    return tuple(sorted(found))


def hypervolume(points: Sequence[Point], reference: Reference = REFERENCE) -> float:
    """Area of (accuracy, params_ratio) that is no better than some point and better than the reference."""
    inside = [one for one in points if one.accuracy > reference.accuracy and one.params_ratio < reference.params_ratio]
    area, width = 0.0, reference.params_ratio
    for one in sorted(inside, key=lambda point: (-point.accuracy, point.params_ratio)):
        if one.params_ratio < width:
            area += (one.accuracy - reference.accuracy) * (width - one.params_ratio)
            width = one.params_ratio
    return area
