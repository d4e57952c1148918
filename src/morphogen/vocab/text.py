"""Values and texts of others in a message, short, in one line, harmless to a terminal; tables of
names.
"""

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def format_value(value: object) -> str:
    """A value in a message: as JSON where it is JSON, in ASCII, cut at 60 characters."""
    text = f"a {type(value).__name__}"
    for form in (ascii, json.dumps):
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = form(value)
    return text if len(text) <= 60 else text[:57] + "..."


def suggest(word: object, known: Iterable[str]) -> str:
    """Return ` (did you mean NAME?)` with the known name that is closest to a word; "" if none is
    close.
    """
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1) if isinstance(word, str) else []
    return f" (did you mean {names[close[0]]}?)" if close else ""


def format_choice(value: object, known: Collection[str]) -> str:
    """A refused value in a message, with the known name that was meant, if one is close to it or to
    an item of it.
    """
    words = value if isinstance(value, list | tuple) else [value]
    meant = next(
        (hint for word in words if word not in known and (hint := suggest(word, known))), ""
    )
    return f"{format_value(value)}{meant}"


def escape_text(text: str) -> str:
    """The text, with escapes for control and unprintable characters."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun: `1 round`, `2,000 rounds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_names(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others: `a, b, c and 2 more`."""
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def name_map(text: str) -> dict[str, str]:
    """`a=b, c` -> {"a": "b", "c": "c"}: a table of names, in order."""
    pairs = (part.partition("=") for part in text.split(", "))
    return {name: other or name for name, _, other in pairs}


def short_repr(cls: C) -> C:
    """Give a class with fields a repr of one line: each field by its dtype and shape, or by the
    class of a part.
    """
    # because classes of tensordict declare another type
    setattr(cls, "__repr__", _describe_fields)  # noqa: B010
    return cls


def _describe_fields(self: Any) -> str:
    names = getattr(self, "_fields", None) or [field.name for field in dataclasses.fields(self)]
    parts = [f"{name}={_describe_value(getattr(self, name))}" for name in names]
    return f"{type(self).__name__}({', '.join(parts)})"


def _describe_value(value: Any) -> str:
    """A number or a text as it is; `float32 [4, 438]` for a tensor or an array, `Slots [4]` for a
    tree, `Samples of 400`, else the class.
    """
    if isinstance(value, str | int | float | None):
        return repr(value)
    kind = type(value).__name__
    if hasattr(value, "dtype") and not hasattr(value, "batch_size"):
        kind = str(value.dtype).removeprefix("torch.")
    if hasattr(value, "shape"):
        return f"{kind} {list(value.shape)}"
    counted = hasattr(value, "__len__") and not isinstance(value, tuple)
    return f"{kind} of {len(value)}" if counted else kind
