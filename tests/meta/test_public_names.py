"""Public names are typed, documented with shapes, and shown by examples that run."""

import ast
import doctest
import enum
import inspect
import itertools
import re
import textwrap
import tomllib
from pathlib import Path
from types import GenericAlias
from typing import Any, get_type_hints

import pytest
import torch
from meta.public_names import SRC, public_files, public_objects
from tensordict import TensorClass, TensorDictBase

import morphogen

ROOT = Path(__file__).parents[2]
OBJECTS = public_objects()
SHAPE = re.compile(r"\[[^\]\n]*[A-Z][^\]\n]*\]|\[\]|0-d|[Ss]hapes?")
EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
every_name = pytest.mark.parametrize("name", sorted(OBJECTS))


def is_result(value: Any) -> bool:
    """Classes of which a user gets objects, and makes none: results, states, enums, exceptions,
    protocols.
    """
    if not inspect.isclass(value):
        return not callable(value)
    if (
        issubclass(value, Exception | enum.Enum | tuple)
        or TensorClass in value.__mro__
        or hasattr(value, "_is_tensorclass")
    ):
        return True
    return (
        bool(getattr(value, "_is_protocol", False))
        or "Results" in (value.__doc__ or "").partition("\n")[0]
    )


def has_tensors(value: Any) -> bool:
    """Return whether the annotations of a function name tensors, or trees of them."""
    if not inspect.isfunction(value):
        return False
    hints = get_type_hints(value).values()
    return any(
        isinstance(hint, type) and issubclass(hint, torch.Tensor | TensorDictBase) for hint in hints
    ) or any("Tensor" in str(hint) for hint in hints)


@every_name
def test_it_has_a_docstring_with_shapes_and_an_example(name):
    value = OBJECTS[name]
    if isinstance(value, GenericAlias) or (not callable(value) and not inspect.isclass(value)):
        return  # a type alias, a table or a registry
    text = inspect.getdoc(value) or ""
    assert text
    if has_tensors(value):
        assert SHAPE.search(text), "shapes are missing"
    if not is_result(value):
        assert EXAMPLE.search(text), "an example is missing"


RESULTS = sorted(
    name
    for name, value in OBJECTS.items()
    if inspect.isclass(value) and (TensorClass in value.__mro__ or hasattr(value, "_fields"))
)


def attribute_docs(kind: type) -> set[str]:
    """Names of the fields of a class that are followed by a docstring."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id
        for field, text in itertools.pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
    }


@pytest.mark.parametrize("name", RESULTS)
def test_every_tensor_of_a_state_and_of_a_result_is_described(name):
    leaves = OBJECTS[name].__annotations__
    assert leaves
    assert {leaf for leaf, kind in leaves.items() if kind is torch.Tensor} <= attribute_docs(
        OBJECTS[name]
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_examples_run():
    finder = doctest.DocTestFinder(recurse=True, exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    seen: set[int] = set()
    for name, value in sorted(OBJECTS.items()):
        if id(value) in seen or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        seen.add(id(value))
        for test in finder.find(value, name):
            runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 200


def test_every_name_of_the_stub_can_be_imported_and_stands_once():
    lines = re.findall(
        r"(?m)^from (\S+) import (\w+) as (\w+)$", (SRC / "__init__.pyi").read_text()
    )
    assert [name for _, name, _ in lines] == [name for _, _, name in lines]
    assert len(lines) == len(morphogen._HOMES)
    assert all(getattr(morphogen, name) is not None for name in morphogen._HOMES)
    assert (SRC / "py.typed").exists()


def test_the_type_checker_is_strict_on_every_file_with_a_public_name():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    assert config["strict"] == public_files()
    assert not [
        name for name, value in config.items() if name.startswith("report") and value is False
    ]


def test_inline_exceptions_from_the_type_checker_are_few():
    """Each names its rule; their number is stated in the manual of the tests."""
    lines = [
        line
        for path in SRC.rglob("*.py")
        for line in path.read_text().splitlines()
        if "pyright: ignore" in line
    ]
    assert all(re.search(r"pyright: ignore\[[a-zA-Z, ]+\]", line) for line in lines)
    stated = re.search(r"(\d+) inline exceptions", (ROOT / "tests" / "README.md").read_text())
    assert stated is not None
    assert len(lines) <= int(stated[1])  # fewer without an extra
