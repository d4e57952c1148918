"""Docstrings of classes with the comments of their fields, for `help` and the API pages."""

import ast
import functools
import inspect
import textwrap
from enum import Enum
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def document_fields(cls: C) -> C:
    """Add the comment of every field to the docstring of a class, read from its source when it is first asked for.

    A field without a comment is listed with its type, a member of an enum with its number.  Classes of tensordict lose
    their docstring to a signature; this restores it.
    """
    setattr(cls, "__doc__", _SourceDoc())  # noqa: B010 - a descriptor, which the type of `__doc__` does not know
    return cls


class _SourceDoc:
    def __get__(self, instance: object, owner: type) -> str:
        return _read_doc(owner)


@functools.cache
def _read_doc(cls: Any) -> str:
    source = textwrap.dedent(inspect.getsource(cls))
    lines, (node,) = source.splitlines(), ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    fields: list[str] = []
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id[0] != "_":
            _, _, comment = lines[(field.end_lineno or field.lineno) - 1].partition("  # ")
            fields.append(f"    {field.target.id}: {comment or ast.unparse(field.annotation)}")
        if isinstance(field, ast.Assign) and issubclass(cls, Enum):
            member, _, comment = lines[field.lineno - 1].partition("  # ")
            fields.append(", ".join(filter(None, (member, comment))))
    text, example, rest = (ast.get_docstring(node) or "").partition("\n\nExample:")
    return "\n".join((f"{text}\n\nFields:", *fields)) + example + rest
