"""The settings as a page of Markdown: a table per group, made from the fields."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from morphogen.config.fields import Settings, fields_of
from morphogen.config.reference import Setting
from morphogen.config.spec import RunSpec

HEAD = """# All settings

This page is generated from the fields: `morphogen config --markdown` prints it.

A setting is given by `--set GROUP.NAME=VALUE`, in a config file, or in Python. The tables show the
defaults of the fields. A task or a preset may set another value: `morphogen config FIELD` prints
the one that `morphogen train` uses. `null` means that nothing is set, or something else decides.
"""
RUN = "run"  # heading of the settings without a group
RUN_TEXT = "Settings without a group: `--set NAME=VALUE`."
LARGE = 2**63  # the bound of integers that have no other
LIMITS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
}


def render_page(settings: Iterable[Setting]) -> str:
    """Return the page of these settings: their groups in the order of their first fields, each a
    heading, a sentence and a table.
    """
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.path.rpartition(".")[0], []).append(setting)
    links = [f"[`{name or RUN}`](#{(name or RUN).replace('.', '')})" for name in groups]
    sections = chain.from_iterable(_section(name, rows) for name, rows in groups.items())
    return "\n".join([HEAD, f"Groups: {', '.join(links)}.", *sections]) + "\n"


def _section(group: str, settings: Iterable[Setting]) -> Iterator[str]:
    yield f"\n## `{group or RUN}`\n\n{_describe_group(group) if group else RUN_TEXT}\n"
    yield "| name | default | allowed values | meaning |\n|---|---|---|---|"
    for setting in settings:
        cells = (
            f"`{setting.path.rpartition('.')[2]}`",
            f"`{json.dumps(setting.default)}`",
            describe_allowed(setting.allowed),
            setting.meaning.replace("*", "\\*"),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _describe_group(group: str) -> str:
    """Return the first sentences about a group: the first paragraph of its class."""
    kind: Any = RunSpec
    for name in group.split("."):
        kind = fields_of(kind)[name].annotation
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


def describe_allowed(schema: Settings) -> str:
    """Return the allowed values of a field in words.  schema: JSON schema of the field."""
    if "anyOf" in schema:
        return "; or ".join(map(describe_allowed, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{name}`" for name in schema["enum"]) or "a name that is registered"
    kind = schema["type"]
    if kind == "array":
        pair = schema.get("prefixItems")
        if pair:
            return f"`[low, high]`, each: {describe_allowed(pair[0])}"
        return f"list of: {describe_allowed(schema['items'])}"
    names = {"null": "`null`", "boolean": "`true`, `false`", "string": "text"}
    if {"minimum", "maximum"} <= schema.keys():
        return f"{kind} in {schema['minimum']} .. {schema['maximum']}"
    limits = [
        f"{sign} {schema[name]}"
        for name, sign in LIMITS.items()
        if name in schema and schema[name] != LARGE
    ]
    return f"{names.get(kind, kind)} {' and '.join(limits)}".rstrip()
