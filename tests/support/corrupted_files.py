"""Damaged inputs: texts, JSON and bytes that began as something whole, and what may stand in the
place of a file.
"""

import json
import os
import re
from dataclasses import dataclass

from hypothesis import strategies as st

# JSON values that few readers expect, as they stand in a file.
ODD = (
    *("null", "true", "0", "-1", "1.0", "-0.0", "1e400", "1e-400", "NaN", "-Infinity"),
    *("9223372036854775808", "1" + "0" * 400, "9" * 5000, "0." + "3" * 5000),
    *('""', '"x"', '"r0c0"', '"\\ud800"', '"\\u0000"', '"a\\nb"', '"\\u001b[2J"', '"é"', '"%s%n"'),
    *('"../../etc"', '"/dev/zero"', '"schedule:/dev/zero"', '"' + "A" * 5000 + '"'),
    *("[]", "{}", "[null]", "[1,2]", '["r0c0","r0c0"]', '{"x":1,"x":2}'),
    *("[" * 100_000, '{"a":' * 100_000, '{"a":' * 70 + "1" + "}" * 70, "[" * 70 + "]" * 70),
    *("", "nul", "'x'", "01", "1_000", "0x10", '"', "\ufeff1", "1 1", ",", "[1,]"),
)


class Raw(str):
    """A JSON value as it stands in a file."""

    __slots__ = ()


class Pairs(list):
    """A JSON object: names may stand in it more than once."""


def text(value):
    """The JSON text of a value with `Raw` and `Pairs` in it."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{text(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    return json.dumps(value)


def containers(value):
    """All objects and lists that are not empty."""
    inner = (
        [one for _, one in value]
        if isinstance(value, Pairs)
        else value
        if isinstance(value, list)
        else []
    )
    own = [value] if inner else []
    return own + [found for one in inner for found in containers(one)]


def values():
    """Any JSON value as text: odd ones, and those that Hypothesis finds."""
    plain = (
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    )
    leaf = plain | st.text(max_size=8)
    tree = st.recursive(
        leaf,
        lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one),
        max_leaves=6,
    )
    return st.sampled_from(ODD).map(Raw) | tree.map(lambda value: Raw(json.dumps(value)))


def _edit(draw, tree):
    """One change of a tree, in place."""
    found = containers(tree)
    if not found:
        return
    home = draw(st.sampled_from(found))
    i = draw(st.integers(0, len(home) - 1))
    how = draw(st.sampled_from(("replace", "replace", "replace", "drop", "double", "rename")))
    entry = home[i]
    named = isinstance(home, Pairs)
    if how == "drop":
        del home[i]
    elif how == "double":
        home.append(entry)
    elif how == "rename" and named:
        names = st.text(max_size=6) | st.sampled_from([name for name, _ in home])
        home[i] = (draw(names), entry[1])
    else:
        changed = draw(values())
        home[i] = (entry[0], changed) if named else changed


@st.composite
def edited(draw, whole):
    """JSON texts one to three changes away from a whole one."""
    tree = json.loads(whole, object_pairs_hook=Pairs)
    for _ in range(draw(st.integers(1, 3))):
        _edit(draw, tree)
    return text(tree).encode("utf-8", "surrogatepass")


@st.composite
def damaged(draw, whole):
    """Bytes one to four changes away from whole ones."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at, far = draw(st.integers(0, len(found))), draw(st.integers(0, len(found)))
        how = draw(st.sampled_from(("flip", "flip", "cut", "insert", "splice")))
        if how == "flip" and at < len(found):
            found[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del found[at:]
        elif how == "insert":
            odd = st.sampled_from((b"\0" * 8, b"\n", b"\xff\xfe", b"\xed\xa0\x80"))
            found[at:at] = draw(st.binary(max_size=8) | odd)
        elif how == "splice":
            found[at:at] = found[far : far + draw(st.integers(0, 64))]
    return bytes(found)


def jsons(whole):
    """Files that should hold a JSON text like this one."""
    deep = edited(whole).flatmap(lambda one: st.just(one) if len(one) > 100_000 else damaged(one))
    odd = st.sampled_from(ODD).map(lambda one: one.encode("utf-8", "surrogatepass"))
    most = edited(whole)
    coded = st.sampled_from(("utf-16", "utf-32", "utf-8-sig", "latin-1")).map(whole.encode)
    return st.one_of(
        most, most, most, damaged(whole.encode()), deep, odd, st.binary(max_size=80), coded, PLACES
    )


@dataclass(frozen=True)
class Place:
    """Object in the place of a file."""

    kind: str

    def put(self, path):
        """Make it."""
        if self.kind == "directory":
            path.mkdir()
        elif self.kind == "pipe":
            os.mkfifo(path)
        elif self.kind == "loop":
            path.symlink_to(path.name)
        elif self.kind == "huge":
            path.touch()
            os.truncate(path, 20 * 2**30)  # holes take no space
        elif self.kind != "nothing":
            path.symlink_to(self.kind)


PLACES = st.sampled_from(
    [
        Place(kind)
        for kind in (
            "nothing",
            "directory",
            "pipe",
            "loop",
            "huge",
            "/dev/zero",
            "/dev/tty",
            "/dev/null",
        )
    ]
)


def put(path, content):
    """Write a file, or what stands in its place."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        path.rmdir()
    if isinstance(content, Place):
        content.put(path)
    else:
        path.write_bytes(content)


@st.composite
def lines(draw, whole):
    """Files of JSON lines one to three changes away from whole ones."""
    found = whole.encode().splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 3))):
        if not found:
            break
        at, far = draw(st.integers(0, len(found) - 1)), draw(st.integers(0, len(found) - 1))
        how = draw(st.sampled_from(("edit", "edit", "edit", "drop", "double", "swap", "bytes")))
        if how == "drop":
            del found[at]
        elif how == "double":
            found.insert(far, found[at])
        elif how == "swap":
            found[at], found[far] = found[far], found[at]
        elif how == "bytes":
            found[at] = draw(damaged(found[at]))
        elif re.match(rb"\{.*\}\n", found[at]):
            found[at] = draw(edited(found[at].decode())) + b"\n" if _is_json(found[at]) else b"\n"
    return b"".join(found)


def _is_json(line):
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
