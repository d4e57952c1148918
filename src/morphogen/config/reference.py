"""Reference of all settings: allowed values, default, flag and meaning, read from the fields of the
specs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from morphogen.config.fields import Flag, Spec, describe, fields_of
from morphogen.config.spec import RunSpec


class Setting(NamedTuple):
    """One setting of a run."""

    path: str  # ppo.clip
    meaning: str
    default: Any  # of the class; a preset or a task may have another one
    flag: Flag | None  # of the command line; None: only --set
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
        flag = next((mark for mark in info.metadata if isinstance(mark, Flag)), None)
        meaning = info.description or f"{_first_clause(kind)}: {name}"
        default = info.default if issubclass(kind, Spec) else kind._field_defaults[name]
        yield Setting(path, " ".join(meaning.split()), default, flag, info)


def _first_clause(kind: type) -> str:
    """Return the first clause of the docstring of a group whose fields have one meaning."""
    line = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    clause = line.partition(";")[0].rstrip(".").removesuffix(", per head")
    return clause[:1].lower() + clause[1:]
