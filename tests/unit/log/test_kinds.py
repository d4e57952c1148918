"""Every kind of event: made only of what its fields hold, and the same again from its line."""

import json
import math
import types
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import one_in
from typing_extensions import is_typeddict

from morphogen.log.events import Envelope, field_names
from morphogen.log.jsonl import decode, encode, event_kinds
from morphogen.log.kinds.epoch import RolledBack
from morphogen.log.kinds.run import CheckpointSaved

NAMES = st.text(max_size=4)
WHOLE = st.integers(-(2**63), 2**64 - 1)
few = settings(max_examples=one_in(3))  # for each kind
every_kind = pytest.mark.parametrize("kind", event_kinds().values(), ids=event_kinds())


def values(hint):
    """Values of a type, as a program may hand them to an event."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        spans = [one.metadata for one in inner[1:] if hasattr(one, "metadata")]
        return bounded(inner[0], *spans) if spans else values(inner[0])
    if kind in (Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if kind is Literal:
        return st.sampled_from(inner)
    if kind is tuple:
        return st.lists(values(inner[0]), max_size=3)
    if kind is dict:
        return st.dictionaries(NAMES, values(inner[1]), max_size=3)
    if is_typeddict(hint):
        return st.fixed_dictionaries(
            {name: values(held) for name, held in get_type_hints(hint, None, None, True).items()}
        )
    return PLAIN[hint]


PLAIN = {
    int: WHOLE,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    str: NAMES,
    # not measured, or not finite
    types.NoneType: st.sampled_from([None, math.nan, math.inf, -math.inf]),
    Any: st.one_of(st.none(), WHOLE, st.floats(), NAMES, st.lists(WHOLE, max_size=2)),
}


def bounded(of, limits):
    low, high = (
        next((getattr(one, side) for one in limits if hasattr(one, side)), None)
        for side in ("ge", "le")
    )
    if of is int:
        return st.integers(low, 2**64 - 1 if high is None else high)
    return st.floats(low, high, allow_infinity=False)


def made(kind):
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{one.name: values(hints[one.name]) for one in fields(kind)})


def placed(data, draw):
    """The event in an envelope with its coordinates, and now and then with more."""
    where = set(data.WHERE) | draw(st.sampled_from([set(), {"round"}, {"round", "epoch"}]))
    numbers = {name: draw(st.integers(0, 10**9)) for name in where - {"slot"}}
    names = {name: draw(NAMES) for name in where & {"slot"}}
    severity = draw(st.sampled_from(["", "info", "warning", "error"]))
    return Envelope(data, **numbers, **names, severity=severity)


@every_kind
@few
@given(draw=st.data())
def test_an_event_comes_back_from_its_line(kind, draw):
    event = placed(draw.draw(made(kind)), draw.draw)
    text = encode(event, seq=3, time=12.5)
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text, parse_constant=pytest.fail)["event"] == event.name
    assert decode(text) == (event,)
    assert encode(*decode(text), seq=3, time=12.5) == text


@pytest.mark.slow
@every_kind
@few
@given(draw=st.data())
def test_a_line_without_a_field_or_with_one_more_is_refused(kind, draw):
    whole = json.loads(encode(placed(draw.draw(made(kind)), draw.draw), seq=0, time=0.0))
    shown = {key: field for field, key in field_names(kind).items()}
    # a field with a default may be younger than a log
    needed = [key for key in whole["data"] if not hasattr(kind, shown[key])]
    wrong = [{**whole["data"], "more": 1}]
    if needed:
        name = draw.draw(st.sampled_from(sorted(needed)))
        wrong.append({key: value for key, value in whole["data"].items() if key != name})
    for data in wrong:
        with pytest.raises(ValueError, match="expected the keys"):
            decode(json.dumps({**whole, "data": data}))


@every_kind
@few
@given(draw=st.data())
def test_an_event_is_not_made_of_what_its_fields_do_not_hold(kind, draw):
    """A tuple stands in no field of an event where a mapping does, nor the other way round, and
    neither is a number.
    """
    good = draw.draw(made(kind))
    name = draw.draw(st.sampled_from([one.name for one in fields(kind)]))
    bad = [1] if isinstance(getattr(good, name), dict) else {"a": {"b": [{1: 2}]}}
    given_ = {one.name: getattr(good, one.name) for one in fields(kind)}
    if get_type_hints(kind)[name] == dict[str, Any]:
        bad = [1]
    with pytest.raises(ValueError, match=rf"for {kind.__name__}\n{name}"):
        kind(**{**given_, name: bad})


@every_kind
def test_coordinates_of_a_kind_are_those_of_a_unit_of_time(kind):
    assert kind.WHERE in [(), ROUND, (*ROUND, "epoch"), (*ROUND, *EPOCH), (*ROUND, *EPOCH, "slot")]


ROUND, EPOCH = ("round",), ("epoch", "env", "episode")
SAVED = CheckpointSaved(path="a", kind="final", size_bytes=3, save_s=0.1)
ROLLED = RolledBack(
    reason="chance",
    loss=1.0,
    loss_limit=2.0,
    streak=1,
    penalty=0.5,
    seeds_pruned=0,
    snapshot_epoch=-1,
)
ENV = {"round": 0, "epoch": 2, "env": 1, "episode": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epoch": None}, "RolledBack.epoch: missing"),
        ({"env": None}, "RolledBack.env: missing"),
        ({"round": -1}, "round\n.* greater than or equal to 0"),
        ({"round": 2**63}, "round\n.* less than 9223372036854775808"),
        ({"round": True}, "round\n.* valid integer"),
        ({"slot": 3}, "slot\n.* valid string"),
        ({"severity": "fatal"}, "severity\n.* 'info', 'warning' or 'error'"),
    ],
)
def test_an_envelope_is_where_its_event_belongs(change, said):
    assert Envelope(ROLLED, **ENV).severity == "warning"
    with pytest.raises(ValueError, match=said):
        Envelope(ROLLED, **{**ENV, **change})


@pytest.mark.parametrize("half", [{"env": 1}, {"episode": 1}])
def test_an_episode_is_told_exactly_where_an_env_is(half):
    with pytest.raises(ValueError, match="expected with env or not at all"):
        Envelope(SAVED, **half)


def test_a_line_with_another_value_is_refused_with_its_field():
    line = json.loads(encode(Envelope(SAVED), seq=0, time=0.0))
    line["data"]["size_bytes"] = -1
    with pytest.raises(ValueError, match=r"^CheckpointSaved.size_bytes: expected .* 0, got -1$"):
        decode(json.dumps(line))


@pytest.mark.parametrize("text", ["[]", "3", '{"v": 1}'])
def test_a_line_that_is_no_envelope_is_refused(text):
    with pytest.raises(ValueError, match=r"expected an object|another version"):
        decode(text)
