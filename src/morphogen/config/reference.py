"""Reference of all settings: allowed values, default, flag and meaning, read from the fields of the
specs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from morphogen.config.fields import Spec, describe, fields_of
from morphogen.config.spec import RunSpec

MAX_NOTE = 90  # characters of a meaning that is added to an error


class Setting(NamedTuple):
    """One setting of a run."""

    path: str  # ppo.clip
    meaning: str
    allowed: str
    default: Any  # of the class; a preset or a task may have another one
    flag: str  # of the command line; "" = only --set


def list_settings(kind: Any = RunSpec, above: str = "") -> Iterator[Setting]:
    """Yield every setting of a spec, in the order of its fields.  Groups are entered, not
    listed.
    """
    for name, info in fields_of(kind).items():
        path = f"{above}{name}"
        inner = info.annotation
        if fields_of(inner):
            yield from list_settings(inner, f"{path}.")
            continue
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        flag = str(extra.get("flag", ""))
        meaning = info.description or f"{_first_clause(kind)}: {name}"
        # the flag has the text
        meaning = f"false: {meaning}" if flag.startswith("--no-") else meaning
        default = info.default if issubclass(kind, Spec) else kind._field_defaults[name]
        yield Setting(path, meaning, describe(inner, info.metadata), default, flag)


def _first_clause(kind: type) -> str:
    """Return the first clause of the docstring of a group whose fields have one meaning."""
    line = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    clause = line.partition(";")[0].rstrip(".").removesuffix(", per head")
    return clause[:1].lower() + clause[1:]


def explain_fault(line: str) -> str | None:
    """Return the meaning of the setting that a line of a ConfigError begins with.

    None if the line begins with no setting, or if the meaning is long: it lists the values that the
    line lists.
    """
    path = line.partition(": ")[0]
    meanings = (setting.meaning for setting in list_settings() if setting.path == path)
    return next((meaning for meaning in meanings if len(meaning) <= MAX_NOTE), None)
