"""Strategies for configs: values inside and just outside of what each field accepts, and whole valid specs."""

import math
from dataclasses import MISSING, fields

from hypothesis import strategies as st

from morphogen.config import fields as kinds
from morphogen.config import spec as specs
from morphogen.config.task import TASKS

GROUPS = (
    specs.DataSpec,
    specs.HostSpec,
    specs.LifecycleSpec,
    specs.GovernorSpec,
    specs.SignalSpec,
    specs.AttributionSpec,
    specs.RewardSpec,
    specs.PolicySpec,
    specs.PpoSpec,
    specs.EngineSpec,
    specs.InstanceSpec,
    specs.TelemetrySpec,
)
WIDE = 1e6  # where a bound is open


def plain_fields(spec):
    """The fields of a spec that are not nested specs."""
    return [one for one in fields(spec) if not isinstance(one.metadata["want"], kinds.Group)]


def path_of(spec, field):
    return f"{spec.PATH}.{field.name}" if spec.PATH else field.name


FIELDS = [
    (spec, field)
    for spec in (*GROUPS, specs.LegacyRewardSpec, specs.WandbSpec, specs.RunSpec)
    for field in plain_fields(spec)
]
FIELD_IDS = [path_of(spec, field) for spec, field in FIELDS]


def default_of(field):
    return field.default if field.default is not MISSING else field.default_factory()


def inside(want):
    """Values at the bounds of a number field that are allowed."""
    if isinstance(want, kinds.Int):
        return [want.low] + ([] if want.high is None else [want.high])
    low = want.low if want.above is None else math.nextafter(want.above, math.inf)
    high = want.high if want.below is None else math.nextafter(want.below, -math.inf)
    return [bound for bound in (low, high) if bound is not None]


def outside(want):
    """Values just beyond the bounds of a number field."""
    if isinstance(want, kinds.Int):
        return [want.low - 1] + ([] if want.high is None else [want.high + 1])
    below = [] if want.low is None else [math.nextafter(want.low, -math.inf)]
    above = [] if want.high is None else [math.nextafter(want.high, math.inf)]
    open_ends = [bound for bound in (want.above, want.below) if bound is not None]
    return [*below, *above, *open_ends, math.nan, math.inf, -math.inf]


def wrong_types(want):
    """JSON values of a type that the field does not take."""
    every = [True, 1.0, 1, "x y", [[]], {"x": 1}, ["", 3]]
    fits = {
        kinds.Int: (1,),
        kinds.Real: (1, 1.0),
        kinds.Flag: (True,),
        kinds.Text: ("x y",),
        kinds.Choice: (),
        kinds.Names: (),
        kinds.Span: (),
        kinds.PerKey: (),
    }[type(want)]
    return [value for value in every if not any(type(value) is type(fit) for fit in fits)]


def value_of(want):
    """Allowed values of one field."""
    if isinstance(want, kinds.Group):
        return groups(want.spec)
    some = _KINDS[type(want)](want)
    return st.one_of(st.none(), some) if want.null else some


def _whole(want):
    high = want.low + 40 if want.high is None else min(want.high, want.low + 40)
    return st.integers(want.low, high) | st.sampled_from((want.low, *want.words))


def _real(want):
    low = want.low if want.above is None else want.above
    high = want.high if want.below is None else want.below
    return st.floats(
        -WIDE if low is None else low,
        WIDE if high is None else high,
        exclude_min=want.above is not None,
        exclude_max=want.below is not None,
    )


def _span(want):
    return st.tuples(value_of(want.of), value_of(want.of)).map(lambda pair: tuple(sorted(pair)))


_KINDS = {
    kinds.Int: _whole,
    kinds.Real: _real,
    kinds.Flag: lambda want: st.booleans(),
    kinds.Choice: lambda want: st.sampled_from(tuple(want.names)),
    kinds.Text: lambda want: st.text(min_size=1, max_size=20).filter(str.isprintable),
    kinds.Names: lambda want: st.lists(st.sampled_from(want.among or ("cpu", "cuda:3")), unique=True).filter(
        lambda names: want.least <= len(names) <= (want.most or len(names))
    ),
    kinds.Span: _span,
    kinds.PerKey: lambda want: st.tuples(*(value_of(each) for each in want.each)),
}


@st.composite
def groups(draw, spec):
    """A valid group: a few fields changed from their defaults; what contradicts another field is left out."""
    values = {one.name: draw(value_of(one.metadata["want"])) for one in fields(spec) if draw(st.booleans())}
    try:
        return spec(**values)
    except ValueError:
        return spec()


@st.composite
def runs(draw):
    """A valid RunSpec, resolved or not."""
    task = draw(st.sampled_from(tuple(TASKS)))
    names = [slot.name for slot in TASKS[task].host.all_slots]
    some = draw(st.lists(st.sampled_from(GROUPS), max_size=3, unique=True))
    values = {group.PATH: draw(groups(group)) for group in some}
    for one in plain_fields(specs.RunSpec):
        if one.name not in ("task", "slots") and draw(st.booleans()):
            values[one.name] = draw(value_of(one.metadata["want"]))
    slots = draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True))
    try:
        spec = specs.RunSpec(**values, task=task, slots=slots)
        return draw(st.sampled_from((spec, specs.resolve(spec))))
    except ValueError:
        return specs.RunSpec(task=task, slots=slots)
