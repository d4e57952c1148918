"""Reference of all settings: allowed values, default, flag and meaning, read from the fields of the
specs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from morphogen.config.fields import Spec, describe, fields_of
from morphogen.config.spec import RunSpec


class Setting(NamedTuple):
    """One setting of a run."""

    path: str  # ppo.clip
    meaning: str
    default: Any  # of the class; a preset or a task may have another one
    flag: str  # of the command line; "" = only --set
    group: str  # title of a group of flags
    field: FieldInfo

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        return describe(self.field.annotation, self.field.metadata)


def list_settings(kind: Any = RunSpec, above: str = "") -> Iterator[Setting]:
    """Yield every setting of a spec, in the order of its fields.  Groups are entered, not
    listed.
    """
    for name, info in fields_of(kind).items():
        path = f"{above}{name}"
        if fields_of(info.annotation):
            yield from list_settings(info.annotation, f"{path}.")
            continue
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        flag = str(extra.get("flag", ""))
        meaning = info.description or f"{_first_clause(kind)}: {name}"
        # the flag has the text
        meaning = f"false: {meaning}" if flag.startswith("--no-") else meaning
        default = info.default if issubclass(kind, Spec) else kind._field_defaults[name]
        yield Setting(path, meaning, default, flag, str(extra.get("group", "")), info)


def _first_clause(kind: type) -> str:
    """Return the first clause of the docstring of a group whose fields have one meaning."""
    line = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    clause = line.partition(";")[0].rstrip(".").removesuffix(", per head")
    return clause[:1].lower() + clause[1:]
