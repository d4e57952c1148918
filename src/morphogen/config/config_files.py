"""Configs as JSON: reading with all faults at once, canonical writing, layers on top of each
other.
"""

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, cast

from morphogen.config.fields import Settings, join_path, merge_settings, to_settings
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.vocab.text import format_value

BYTE_ORDER_MARK = "\ufeff"  # some editors put it in front of a text


class _Repeated:
    """Value of a key that occurs twice in a JSON object; no setting takes it."""

    def __repr__(self) -> str:
        return "two values"


def _read_object(pairs: list[tuple[str, Any]]) -> Settings:
    settings: Settings = {}
    for name, value in pairs:
        printable = name.encode(errors="backslashreplace").decode()
        settings[printable] = _Repeated() if printable in settings else value
    return settings


def parse_value(text: str) -> Any:
    """Return a JSON value.  Raises ConfigError with the place where other text breaks off."""
    try:
        return json.loads(text.removeprefix(BYTE_ORDER_MARK), object_pairs_hook=_read_object)
    except RecursionError:
        raise ConfigError("not JSON: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"not JSON: {ascii(str(error))[1:-1]}") from None


def parse_settings(text: str) -> Settings:
    """Return the settings of a config file."""
    settings = parse_value(text)
    if not isinstance(settings, dict):
        raise ConfigError(f"config: expected one JSON object, got {format_value(settings)}")
    return cast(Settings, settings)


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
        return parse_value(raw)
    except ConfigError as error:
        raise ConfigError(
            f"--set {path}: expected JSON or a word, got {format_value(raw)} ({error})"
        ) from None


def build_spec(*layers: Settings) -> RunSpec:
    """Return the spec with the settings of all layers; the last one wins."""
    return RunSpec(**reduce(merge_settings, layers, {}))


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
        >>> mg.parse_config('{"ppo": {"clip": 3}, "envs": 8, "envs": 4}')
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: envs: expected a valid integer, got two values
        ppo.clip: expected a number less than or equal to 1, got 3
    """
    return build_spec(parse_settings(text))


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
