"""Configs as JSON: reading with all faults at once, canonical writing, layers on top of each
other.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, cast

from morphogen.config.fields import Settings, join_path, merge_settings, raise_all, to_settings
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

RETIRED_TELEMETRY = ("escalate", "escalation_epochs")
BYTE_ORDER_MARK = "\ufeff"  # some editors put it in front of a text


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as read: names in order, doubles included."""


def parse_value(text: str) -> Any:
    """One JSON value; objects come as `_Pairs`.  Anything else is a ConfigError that says where it
    breaks off.
    """
    try:
        return json.loads(text.removeprefix(BYTE_ORDER_MARK), object_pairs_hook=_Pairs)
    except RecursionError:
        raise ConfigError("not JSON: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"not JSON: {ascii(str(error))[1:-1]}") from None


def as_settings(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """The value with plain dicts for objects, and a line for each repeated key."""
    if isinstance(value, _Pairs):
        faults: list[str] = []
        settings: Settings = {}
        for name, inner in (
            (name.encode(errors="backslashreplace").decode(), inner) for name, inner in value
        ):
            where = join_path(path, name)
            faults += [f"{where}: expected once, got twice"] * (name in settings)
            settings[name], deeper = as_settings(inner, where)
            faults += deeper
        return settings, faults
    if isinstance(value, list):
        pairs = [as_settings(item, path) for item in cast("list[Any]", value)]
        return [item for item, _ in pairs], [line for _, lines in pairs for line in lines]
    return value, []


def parse_settings(text: str) -> tuple[Settings, list[str]]:
    """A config file: its settings, and a line for each repeated key."""
    settings, faults = as_settings(parse_value(text))
    if not isinstance(settings, dict):
        raise ConfigError(f"config: expected one JSON object, got {format_value(settings)}")
    return _without_retired(cast(Settings, settings)), faults


def _without_retired(settings: Settings) -> Settings:
    """Settings of a file of before: without names that have no effect any more."""
    telemetry = settings.get("telemetry")
    if not isinstance(telemetry, dict):
        return settings
    names = cast(Settings, telemetry)
    kept: Settings = {name: value for name, value in names.items() if name not in RETIRED_TELEMETRY}
    if kept.get("level") == "minimal":
        kept["level"] = "normal"
    return {**settings, "telemetry": kept}


def parse_assignment(text: str) -> Settings:
    """`ppo.clip=0.1` -> {"ppo": {"clip": 0.1}}; the value is JSON, or a bare word taken as a
    string.
    """
    path, equals, raw = text.partition("=")
    names = path.split(".")
    if not equals or not all(names):
        raise ConfigError(
            f"--set: expected KEY=VALUE, as in --set ppo.clip=0.1, got {format_value(text)}"
        )
    return nest_setting(names, _assigned(reduce(join_path, names, ""), raw))


def nest_setting(names: Sequence[str], value: Any) -> Settings:
    """Nest a value: ("ppo", "clip"), 0.1 -> {"ppo": {"clip": 0.1}}."""
    return reduce(lambda inner, name: {name: inner}, reversed(names), value)


def _assigned(path: str, raw: str) -> Any:
    if raw.isascii() and raw.isidentifier() and raw not in ("true", "false", "null"):
        return raw
    try:
        value, faults = as_settings(parse_value(raw), path)
    except ConfigError as error:
        raise ConfigError(
            f"--set {path}: expected JSON or a word, got {format_value(raw)} ({error})"
        ) from None
    raise_all(faults)
    return value


def build_spec(*layers: Settings, faults: Iterable[str] = ()) -> RunSpec:
    """Return the spec with the settings of all layers; the last one wins.  Raises ConfigError with
    `faults` first.
    """
    lines = list(faults)
    try:
        spec = RunSpec(**reduce(merge_settings, layers, {}))
    except ConfigError as error:
        raise ConfigError("\n".join([*lines, str(error)])) from error
    raise_all(lines)
    return spec


def flatten_settings(settings: Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its path: `ppo.clip`, 0.1."""
    for name, value in settings.items():
        path = join_path(above, name)
        inner = cast(Settings, value) if isinstance(value, dict) else {}
        yield from flatten_settings(inner, path) if inner else [(path, value)]


def parse_config(text: str) -> RunSpec:
    """Build a RunSpec from the text of a config file: a JSON object of settings, groups as nested
    objects.

    Raises: ConfigError for text that is no JSON, repeated keys, unknown names and invalid values, a
    line each.

    Example:
        >>> import morphogen as mg
        >>> mg.parse_config('{"task": "tiny", "ppo": {"clip": 0.1}}').ppo.clip
        0.1
        >>> mg.parse_config('{"ppo": {"clip": 3}, "seed": -1, "seed": 0}')
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: seed: expected once, got twice
        ppo.clip: expected a number > 0 and <= 1, got 3
    """
    settings, faults = parse_settings(text)
    return build_spec(settings, faults=faults)


def dump_config(spec: RunSpec) -> str:
    """Return the text of a config file that gives this spec again; equal specs give equal texts.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.RunSpec(task="tiny", rounds=3)
        >>> text = mg.dump_config(spec)
        >>> text.splitlines()[1:4]
        ['  "task": "tiny",', '  "seed": 0,', '  "rounds": 3,']
        >>> mg.parse_config(text) == spec
        True
    """
    return json.dumps(to_settings(spec), indent=2, allow_nan=False) + "\n"
