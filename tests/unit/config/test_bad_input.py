"""Bad input never surprises: a config is accepted or refused with ConfigError, and the message is
fit to print.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError

COMPLETE = dump_config(resolve(RunSpec()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


def accepted_or_refused(text):
    try:
        spec = parse_config(text)
    except ConfigError as error:
        lines = str(error).splitlines()
        printable = all(line.isascii() and line.isprintable() for line in lines)
        return bool(lines) and printable
    return isinstance(spec, RunSpec) and parse_config(dump_config(spec)) == spec


def leaves(settings, path=()):
    for name, value in settings.items():
        yield (*path, name)
        yield from leaves(value, (*path, name)) if isinstance(value, dict) else ()


PATHS = tuple(leaves(json.loads(COMPLETE)))


@given(st.sampled_from(PATHS), JSON)
def test_any_value_in_any_field_is_accepted_or_refused(path, value):
    settings = json.loads(COMPLETE)
    inner = settings
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    assert accepted_or_refused(json.dumps(settings))


@given(st.sampled_from(PATHS), JSON)
def test_any_unknown_key_at_any_depth_is_refused(path, value):
    settings = json.loads(COMPLETE)
    inner = settings
    for name in path:
        if isinstance(inner[name], dict):
            inner = inner[name]
    inner["nobody_reads_this"] = value
    with pytest.raises(ConfigError, match="nobody_reads_this"):
        parse_config(json.dumps(settings))
