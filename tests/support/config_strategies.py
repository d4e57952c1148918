"""Strategies for configs: values inside and just outside of what each field accepts, and whole
valid specs.
"""

import math
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from morphogen.config import fields as kinds
from morphogen.config import groups as specs
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.fields import fields_of
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.instance_spec import InstanceSpec, ObserveSpec
from morphogen.config.policy_spec import PolicySpec, PpoSpec
from morphogen.config.registry import extra_parts
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import TASKS
from morphogen.config.telemetry_spec import TelemetrySpec

EXTRA_GROUPS = extra_parts("morphogen.settings")
GROUPS = (
    specs.DataSpec,
    specs.HostSpec,
    specs.LifecycleSpec,
    specs.GovernorSpec,
    specs.SignalSpec,
    specs.AttributionSpec,
    specs.EvaluationSpec,
    HeuristicSpec,
    specs.RewardSpec,
    PolicySpec,
    PpoSpec,
    EngineSpec,
    InstanceSpec,
    ObserveSpec,
    TelemetrySpec,
    *EXTRA_GROUPS.values(),
)
WIDE = 1e6  # where a bound is open


def unwrap(kind, metadata=()):
    """The type of an annotation without None, the marks around it, and whether it takes None."""
    marks = [mark for one in metadata for mark in getattr(one, "metadata", [one])]
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        return unwrap(kind, [*inner, *marks])
    kinds_of = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    some = [one for one in kinds_of if one is not NoneType]
    if len(kinds_of) > 1 and len(some) == 1:
        kind, marks, _ = unwrap(some[0], marks)
    return kind, marks, NoneType in kinds_of or kinds.DERIVED in marks


class FieldType:
    """A field of a spec, taken apart: its kind, its bounds, its rule, and whether it takes None."""

    def __init__(self, spec, name, kind, metadata):
        self.path = f"{spec.PATH}.{name}" if spec is not None and spec.PATH else name
        self.spec, self.name = spec, name
        self.kind, marks, self.null = unwrap(kind, metadata)
        self.words = ()
        if get_origin(self.kind) is Union:  # a number, a word or None
            number, *words = (one for one in get_args(self.kind) if one is not NoneType)
            self.words = tuple(word for literal in words for word in get_args(literal))
            self.kind, more, _ = unwrap(number)
            marks = [*marks, *more]
        rules = (kinds.OneOf, kinds.Names)
        self.rule = next((mark for mark in marks if isinstance(mark, rules)), None)
        self.bounds = {
            k: getattr(mark, k)
            for k in ("gt", "ge", "lt", "le")
            for mark in marks
            if hasattr(mark, k)
        }

    def __repr__(self):
        return self.path


def plain_fields(spec):
    """The fields of a spec that are not nested specs."""
    known = [
        FieldType(spec, name, info.annotation, info.metadata)
        for name, info in fields_of(spec).items()
    ]
    return [field for field in known if not hasattr(field.kind, "PATH")]


NESTED = [info.annotation for group in EXTRA_GROUPS.values() for info in fields_of(group).values()]
FIELDS = [
    field
    for spec in (*GROUPS, *EXTRA_GROUPS.values(), *filter(fields_of, NESTED), RunSpec)
    for field in plain_fields(spec)
]


def step_from(field, bound, way):
    """The next number from a bound, upwards or downwards; way 0: the bound."""
    bound = field.bounds[bound]
    if way == 0 or field.kind is int:
        return bound + way
    return math.nextafter(bound, way * math.inf)


def inside(field):
    """Values at the bounds of a number field that are allowed."""
    ways = {"ge": 0, "le": 0, "gt": 1, "lt": -1}
    return [
        step_from(field, bound, ways[bound])
        for bound in field.bounds
        if field.kind is float or bound != "lt"
    ]


def outside(field):
    """Values just beyond the bounds of a number field."""
    ways = {"ge": -1, "le": 1, "gt": 0, "lt": 0}
    beyond = [step_from(field, bound, ways[bound]) for bound in field.bounds]
    return beyond if field.kind is int else [*beyond, math.nan, math.inf, -math.inf]


def wrong_types(field):
    """JSON values of a type that the field does not take."""
    every = [True, 1.0, 1, "x y", [[]], {"x": 1}, ["", 3]]
    fits = {int: (int,), float: (int, float), bool: (bool,)}.get(field.kind, ())
    if field.kind is str and field.rule is None:
        fits = (str,)
    return [value for value in every if type(value) not in fits]


def value_of(field):
    """Allowed values of one field."""
    if hasattr(field.kind, "PATH"):
        return groups(field.kind)
    some = _some(field)
    return st.one_of(st.none(), some) if field.null else some


def _some(field):
    kind, rule = field.kind, field.rule
    if kind is bool:
        return st.booleans()
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is int:
        low, high = field.bounds["ge"], field.bounds.get("le", 2**63)
        return st.integers(low, min(high, low + 40)) | st.sampled_from((low, *field.words))
    if kind is float:
        ends = {"ge": "min_value", "gt": "min_value", "le": "max_value", "lt": "max_value"}
        without = {"gt": {"exclude_min": True}, "lt": {"exclude_max": True}}
        keywords = {"min_value": -WIDE, "max_value": WIDE}
        for name, bound in field.bounds.items():
            keywords |= {ends[name]: bound} | without.get(name, {})
        return st.floats(**keywords)
    if hasattr(kind, "_fields"):
        inner = [
            FieldType(None, name, info.annotation, info.metadata)
            for name, info in fields_of(kind).items()
        ]
        return st.tuples(*map(value_of, inner))
    if get_origin(kind) is tuple and get_args(kind)[1] is not ...:
        end = value_of(FieldType(None, field.name, get_args(kind)[0], []))
        return st.tuples(end, end).map(lambda pair: tuple(sorted(pair)))
    if isinstance(rule, kinds.Names):
        names = tuple(rule.among or ("cpu", "cuda:3"))
        return st.lists(st.sampled_from(names), min_size=rule.among is None, unique=True)
    if isinstance(rule, kinds.OneOf):
        return st.sampled_from(tuple(rule.among) or (None,))  # nothing is registered
    return st.text("aZ09 _-.,:'\"\\{[é中😀", min_size=1, max_size=20)


@st.composite
def groups(draw, spec):
    """A valid group: a few fields changed from their defaults; what contradicts another field is
    left out.
    """
    known = [
        FieldType(spec, name, info.annotation, info.metadata)
        for name, info in fields_of(spec).items()
    ]
    values = {field.name: draw(value_of(field)) for field in known if draw(st.booleans())}
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
    for field in plain_fields(RunSpec):
        if field.name not in ("task", "slots") and draw(st.booleans()):
            values[field.name] = draw(value_of(field))
    slots = draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True))
    try:
        spec = RunSpec(**values, task=task, slots=slots)
        return draw(st.sampled_from((spec, resolve(spec))))
    except ValueError:
        return RunSpec(task=task, slots=slots)
