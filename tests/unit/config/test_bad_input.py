"""Bad input never surprises: a config is accepted or refused with ConfigError, and the message is
fit to print.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config_strategies import runs

from morphogen.cli import main
from morphogen.config.config_files import dump_config, parse_assignment, parse_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.errors import ConfigError

COMPLETE = dump_config(resolve(RunSpec()))
CHARACTERS = st.characters() | st.sampled_from('{}[]",:.0123456789-+eE \n\\tfn')
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


@given(st.integers(0, len(COMPLETE)), CHARACTERS, st.sampled_from(("replace", "insert", "delete")))
def test_one_wrong_character_gives_a_valid_spec_or_a_config_error(place, character, how):
    kept = place if how == "insert" else place + 1
    assert accepted_or_refused(
        COMPLETE[:place] + ("" if how == "delete" else character) + COMPLETE[kept:]
    )


@given(runs(), st.data())
def test_one_wrong_character_in_any_config_is_no_other_exception(spec, data):
    text = dump_config(spec)
    place = data.draw(st.integers(0, len(text) - 1))
    assert accepted_or_refused(text[:place] + data.draw(CHARACTERS) + text[place + 1 :])


@given(st.integers(0, len(COMPLETE)))
def test_a_config_cut_short_is_refused(place):
    assert accepted_or_refused(COMPLETE[:place])


@given(st.text(max_size=40))
def test_any_text_is_accepted_or_refused(text):
    assert accepted_or_refused(text)


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


@given(st.text(max_size=20))
def test_any_assignment_is_read_or_refused(text):
    try:
        assert isinstance(parse_assignment(text), dict)
    except ConfigError:
        assert text != "rounds=1"


@given(st.lists(st.text(max_size=12).filter(lambda word: "\0" not in word), max_size=4))
def test_any_words_after_train_are_refused_with_one_line_each(words):
    refused = [f"--{word}" for word in words] or ["--oops"]
    assert main.main(["train", "--print-config", *refused]) in (0, main.USAGE)


@given(content=st.binary(max_size=60))
def test_any_file_as_config_is_refused_or_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_bytes(content)
    assert main.main(["train", "--print-config", "--config", str(path)]) in (0, main.USAGE)
