"""Reference of all settings: allowed values, default and meaning, read from the fields of the
specs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from morphogen.config.fields import CONFIG, Settings, Spec, fields_of
from morphogen.config.spec import RunSpec


class Setting(NamedTuple):
    """One setting of a run."""

    path: str  # ppo.clip
    meaning: str
    default: Any  # of the class; a preset or a task may have another one
    field: FieldInfo

    @property
    def allowed(self) -> Settings:
        """The allowed values, as a JSON schema."""
        return TypeAdapter(self.field.rebuild_annotation(), config=CONFIG).json_schema()

    @property
    def names(self) -> list[str]:
        """The allowed names; none for another kind of value."""
        schema = self.allowed
        parts = (schema, schema.get("items", {}), *schema.get("anyOf", ()))
        return [name for part in parts for name in part.get("enum", ())]


def list_settings(kind: Any = RunSpec, above: str = "") -> Iterator[Setting]:
    """Yield every setting of a spec, in the order of its fields.  Groups are entered, not
    listed.
    """
    for name, info in fields_of(kind).items():
        path = f"{above}{name}"
        if fields_of(info.annotation):
            yield from list_settings(info.annotation, f"{path}.")
            continue
        meaning = info.description or f"{_first_clause(kind)}: {name}"
        default = info.default if issubclass(kind, Spec) else kind._field_defaults[name]
        yield Setting(path, " ".join(meaning.split()), default, info)


def _first_clause(kind: type) -> str:
    """Return the first clause of the docstring of a group whose fields have one meaning."""
    line = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    clause = line.partition(";")[0].rstrip(".").removesuffix(", per head")
    return clause[:1].lower() + clause[1:]
