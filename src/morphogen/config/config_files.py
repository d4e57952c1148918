"""Configs as JSON: reading with every fault told at once, canonical writing, layers on top of each other."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import reduce
from typing import Any

from morphogen.config.fields import FieldType, Group, Spec, join_path, raise_all
from morphogen.config.preset import PRESETS
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

Settings = dict[str, Any]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as read: names in order, doubles included."""


def parse_value(text: str) -> Any:
    """One JSON value; objects come as `_Pairs`.  Anything else is a ConfigError that says where it breaks off."""
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except RecursionError:
        raise ConfigError("not JSON: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"not JSON: {ascii(str(error))[1:-1]}") from None


def as_settings(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """The value with plain dicts for objects, and a line for each key that stands twice."""
    if isinstance(value, _Pairs):
        found: list[str] = []
        settings: Settings = {}
        for name, inner in value:
            where = join_path(path, name)
            found += [f"{where} is given twice; want it once"] * (name in settings)
            settings[name], deeper = as_settings(inner, where)
            found += deeper
        return settings, found
    if isinstance(value, list):
        pairs = [as_settings(item, path) for item in value]
        return [item for item, _ in pairs], [line for _, lines in pairs for line in lines]
    return value, []


def parse_settings(text: str) -> tuple[Settings, list[str]]:
    """A config file: its settings, and a line for each key that stands twice."""
    settings, found = as_settings(parse_value(text))
    if not isinstance(settings, dict):
        raise ConfigError(f"the config is {format_value(settings)}; want one JSON object")
    return settings, found


def parse_assignment(text: str) -> Settings:
    """`ppo.clip=0.1` -> {"ppo": {"clip": 0.1}}; the value is JSON, or a bare word taken as a string."""
    path, equals, raw = text.partition("=")
    names = path.split(".")
    if not equals or not all(names):
        raise ConfigError(f"--set is {format_value(text)}; want KEY=VALUE, as in --set ppo.clip=0.1")
    settings: Settings = {names[-1]: _assigned(reduce(join_path, names, ""), raw)}
    for name in reversed(names[:-1]):
        settings = {name: settings}
    return settings


def _assigned(path: str, raw: str) -> Any:
    if raw.isascii() and raw.isidentifier() and raw not in ("true", "false", "null"):
        return raw
    try:
        value, found = as_settings(parse_value(raw), path)
    except ConfigError as error:
        raise ConfigError(f"--set {path} is {format_value(raw)}, which is {error}") from None
    raise_all(found)
    return value


def merge_settings(lower: Settings, upper: Settings) -> Settings:
    """The settings of both; where both set a field, the upper one counts."""
    both = {name: merge_settings(lower[name], upper[name]) for name in upper if _objects(lower.get(name), upper[name])}
    return {**lower, **upper, **both}


def _objects(lower: Any, upper: Any) -> bool:
    return isinstance(lower, dict) and isinstance(upper, dict)


def merge_layers(layers: Iterable[Settings]) -> Settings:
    """Layers from the lowest to the highest; the settings of the named preset go beneath all of them."""
    merged: Settings = reduce(merge_settings, layers, {})
    name = merged.get("preset")
    known = isinstance(name, str) and name in PRESETS  # an unknown one is told with the other faults
    return merge_settings(PRESETS[name], merged) if known else merged


def build_spec(settings: Settings, found: list[str] | None = None) -> RunSpec:
    """The spec with these settings; faults found before are told together with those found here."""
    lines = [*(found or []), *_key_faults(RunSpec, settings, "")]
    values = _values(RunSpec, settings, lines)
    raise_all(lines)
    return RunSpec(**values)


def _wants(spec: type[Spec]) -> dict[str, FieldType]:
    return {one.name: one.metadata["want"] for one in fields(spec)}  # type: ignore[arg-type]


def _key_faults(spec: type[Spec], settings: Settings, path: str) -> list[str]:
    """A line for each unknown key at any depth."""
    wants = _wants(spec)
    unknown = [name for name in settings if name not in wants]
    found = [f"{join_path(path, name)} is unknown; want one of {', '.join(wants)}" for name in unknown]
    for name, want in wants.items():
        if isinstance(want, Group) and isinstance(settings.get(name), dict):
            found += _key_faults(want.spec, settings[name], join_path(path, name))
    return found


def _values(spec: type[Spec], settings: Settings, lines: list[str]) -> dict[str, Any]:
    """Arguments of the spec, nested specs built; what is wrong is added to the lines and left out."""
    values: dict[str, Any] = {}
    for name, want in _wants(spec).items():
        if name not in settings:
            continue
        lines += _field(want, join_path(spec.PATH, name), settings[name], values)
    return values


def _field(want: FieldType, path: str, value: Any, values: dict[str, Any]) -> list[str]:
    if not isinstance(want, Group):
        wrong = want.faults(path, value)
    elif not isinstance(value, dict):
        wrong = [f"{path} is {format_value(value)}; want an object"]
    else:
        value, wrong = _group(want, value)
    if not wrong:
        values[path.rpartition(".")[2]] = value
    return wrong


def _group(want: Group, settings: Settings) -> tuple[Spec | None, list[str]]:
    lines: list[str] = []
    values = _values(want.spec, settings, lines)
    try:
        return want.spec(**values), lines
    except ConfigError as error:
        return None, lines + str(error).splitlines()


def to_settings(spec: Spec) -> Settings:
    """The spec as nested dicts, lists and numbers, every field present."""
    return {name: _plain(want, getattr(spec, name)) for name, want in _wants(type(spec)).items()}


def _plain(want: FieldType, value: Any) -> Any:
    return to_settings(value) if isinstance(value, Spec) else want.plain(value)


def flatten_settings(settings: Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its path: `ppo.clip`, 0.1."""
    for name, value in settings.items():
        path = join_path(above, name)
        yield from flatten_settings(value, path) if isinstance(value, dict) and value else [(path, value)]


def parse_config(text: str) -> RunSpec:
    """A RunSpec from the text of a config file; a ConfigError tells all faults, a line each."""
    settings, found = parse_settings(text)
    return build_spec(merge_layers([settings]), found)


def dump_config(spec: RunSpec) -> str:
    """The text of a config file that gives this spec again; the same spec gives the same bytes."""
    return json.dumps(to_settings(spec), indent=2, allow_nan=False) + "\n"
