"""The Pareto front and its hypervolume."""

from hypothesis import given
from hypothesis import strategies as st

from morphogen.extras.inspection.views import Point, hypervolume, pareto_front

# Few values, so that points are often equal in something.
coarse = st.builds(
    Point,
    accuracy=st.sampled_from([0.0, 10.0, 20.0, 30.0]),
    params_ratio=st.sampled_from([1.0, 1.25, 1.5, 2.0, 3.0]),
    stability=st.sampled_from([0.25, 0.5, 1.0]),
)
crowds = st.lists(coarse, max_size=12)


def beaten(one, other):
    """Return whether `other` is at least as good everywhere and better somewhere."""
    gains = (
        other.accuracy - one.accuracy,
        one.params_ratio - other.params_ratio,
        other.stability - one.stability,
    )
    return min(gains) >= 0 < max(gains)


@given(points=crowds)
def test_nobody_on_the_front_is_beaten_and_everybody_else_is_beaten_by_one_of_it(points):
    found = pareto_front(points)
    inside = [points[i] for i in found]
    assert not any(beaten(one, other) for one in inside for other in inside)
    for i, one in enumerate(points):
        assert (i in found) != any(beaten(one, other) for other in inside)


def test_equal_points_stay_together_and_a_point_that_is_better_in_nothing_goes():
    best, twin, worse = Point(80.0, 1.2, 0.9), Point(80.0, 1.2, 0.9), Point(80.0, 1.2, 0.8)
    assert pareto_front([worse, best, twin]) == (1, 2)


@given(points=crowds, more=coarse)
def test_a_further_point_never_takes_hypervolume_away(points, more):
    assert 0 <= hypervolume(points) <= hypervolume([*points, more])


def test_hypervolume_is_the_area_of_the_steps():
    # the last one is within the first
    points = [Point(50.0, 1.0, 1.0), Point(80.0, 1.5, 1.0), Point(40.0, 1.2, 1.0)]
    assert hypervolume(points) == 80 * 0.5 + 50 * 0.5
