"""Values and texts of others in a message, short, in one line, harmless to a terminal; tables of names."""

import contextlib
import json


def format_value(value: object) -> str:
    """A value in a message: as JSON where it is JSON, in ASCII, cut at 60 characters."""
    text = f"a {type(value).__name__}"
    for form in (ascii, json.dumps):
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = form(value)
    return text if len(text) <= 60 else text[:57] + "..."


def escape_text(text: str) -> str:
    """The text, with escapes for what a terminal would act on or cannot show."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun: `1 round`, `2,000 rounds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def name_map(text: str) -> dict[str, str]:
    """`a=b, c` -> {"a": "b", "c": "c"}: a table of names, in order."""
    pairs = (part.partition("=") for part in text.split(", "))
    return {name: other or name for name, _, other in pairs}
