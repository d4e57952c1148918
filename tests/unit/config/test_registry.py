"""Registries: names, origins, replacement, adoption of objects, and parts that are loaded on use
only.
"""

import pytest
from support.offered_packages import write_package

from morphogen.config.registry import PROGRAM, Registry
from morphogen.errors import ConfigError


class Part:
    """A part with a number."""

    def __init__(self, number, name="part"):
        self.number, self.name = number, name


def registry(**core):
    return Registry(
        "part",
        setting="part.name",
        group="morphogen.parts_of_a_test",
        expected="a Part",
        is_part=lambda part: hasattr(part, "number"),
        core=core,
    )


def test_a_built_in_part_is_imported_when_it_is_used():
    parts = registry(digits="morphogen.data.splits:read_digits", lost="morphogen.data.nowhere:read")
    assert list(parts) == ["digits", "lost"]
    assert "lost" in parts
    assert parts.origin("lost") == "own"
    assert parts["digits"].__name__ == "read_digits"
    with pytest.raises(ModuleNotFoundError):
        parts["lost"]


def test_a_registered_part_replaces_one_of_this_program_and_no_other():
    one, two = Part(1), Part(2)
    parts = registry(first=Part(0))
    parts.register("mine", one)
    parts.register("mine", two)
    assert (parts["mine"], parts.origin("mine"), list(parts), len(parts)) == (
        two,
        PROGRAM,
        ["first", "mine"],
        2,
    )
    with pytest.raises(
        ConfigError, match="part first: expected a new name, got the name of a part of own"
    ):
        parts.register("first", one)
    with pytest.raises(ConfigError, match="part other: expected a Part, got 3"):
        parts.register("other", 3)
    with pytest.raises(ConfigError, match=r"name of a part: .*, got 'two words'"):
        parts.register("two words", one)
    assert list(parts) == ["first", "mine"]


def test_an_object_in_the_place_of_a_name_is_registered_under_its_own():
    parts, part = registry(), Part(1, name="mine")
    assert parts.adopt(part) == "mine"
    assert parts.adopt(part) == "mine"
    assert parts["mine"] is part
    for value in ("mine", "other", 3, None, [part]):
        assert parts.adopt(value) is value
    with pytest.raises(ConfigError, match=r"name of a part: .*, got '-'"):
        parts.adopt(Part(1, name="-"))


def test_offers_of_packages_are_listed_without_an_import_and_loaded_on_use(tmp_path, monkeypatch):
    source = "class Part:\n    number = 3\n\n\npart = Part()\nword = 'no part'\n"
    points = {
        "offered": "part",
        "wrong": "word",
        "missing": "nowhere",
        "taken": "part",
    }
    write_package(tmp_path, source, {"morphogen.parts_of_a_test": points}, name="parts_of_others")
    parts = registry()
    parts.register("taken", Part(1))
    monkeypatch.syspath_prepend(tmp_path)
    assert list(parts) == ["taken", "missing", "offered", "wrong"]
    assert parts.origin("offered") == "parts_of_others 0.1"
    assert parts["offered"].number == 3
    with pytest.raises(
        ConfigError,
        match=r"part.name: wrong of parts_of_others 0.1: expected a Part, got 'no part'",
    ):
        parts["wrong"]
    with pytest.raises(
        ConfigError,
        match=r"part.name: missing of parts_of_others 0.1: cannot be imported: Attribute",
    ):
        parts["missing"]
    with pytest.raises(KeyError):
        parts["nobody"]
    assert parts["taken"].number == 1
