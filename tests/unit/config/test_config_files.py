"""Config files: round trips, canonical bytes, refusals with every fault at once, layers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.config_strategies import FIELDS, runs, wrong_types

from morphogen.config.config_files import build_spec, dump_config, parse_assignment, parse_config
from morphogen.config.fields import merge_settings
from morphogen.config.parts import RULES
from morphogen.config.policy_spec import PolicySpec
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import PRESETS
from morphogen.errors import ConfigError


def faults(text):
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return str(caught.value).splitlines()


@given(runs())
def test_a_dumped_config_loads_as_the_same_spec(spec):
    text = dump_config(spec)
    again = parse_config(text)
    assert again == spec
    assert dump_config(again) == text


@given(runs())
def test_a_dumped_config_is_plain_ascii_json_with_every_field(spec):
    text = dump_config(spec)
    assert text.isascii()
    assert text.endswith("}\n")
    found = json.loads(text, parse_constant=pytest.fail)
    assert set(found) == set(vars(spec))
    for name, part in found.items():
        assert not hasattr(getattr(spec, name), "PATH") or set(part) == set(
            vars(getattr(spec, name))
        )


def test_an_empty_object_is_the_default_config():
    assert parse_config("{}") == RunSpec()
    assert parse_config(' \n{"ppo": {}, "instance": {}} \n') == RunSpec()


def test_values_of_a_file_reach_their_fields():
    spec = parse_config(
        '{"task": "digits_impaired", "slots": ["r1c0", "r0c0"], "data": {"val_samples": null, '
        '"augment": false}, "policy": {"floor": {"tempo": 0.02}}, "instance": {"classes": [2, '
        '4]}, "lifecycle": {"auto_forward": ["BLEND"]}}'
    )
    assert (spec.task, spec.slots, spec.data.val_samples, spec.data.augment) == (
        "digits_impaired",
        ("r1c0", "r0c0"),
        None,
        False,
    )
    assert spec.policy.floor == PolicySpec(floor={"tempo": 0.02}).floor
    assert (spec.instance.classes, spec.lifecycle.auto_forward) == ((2, 4), ("BLEND",))


@pytest.mark.parametrize("field", FIELDS, ids=repr)
def test_every_field_refuses_json_of_another_type(field):
    for bad in wrong_types(field):
        settings = bad
        for name in reversed(field.path.split(".")):
            settings = {name: settings}
        assert any(line.startswith(field.path) for line in faults(json.dumps(settings)))


@pytest.mark.parametrize(
    "name", [name for name, value in vars(RunSpec()).items() if hasattr(value, "PATH")]
)
@pytest.mark.parametrize("value", ["3", "null"])
def test_a_group_must_be_an_object(name, value):
    [line] = faults(f'{{"{name}": {value}}}')
    assert line.startswith(f"{name}: expected a dictionary")
    assert line.endswith(f"got {value}")


def test_all_faults_of_a_file_are_reported_at_once():
    lines = faults(
        """{"rounds": 1, "rounds": 0, "epochs": 3, "preset": "none", "slots": "r0c0",
        "ppo": {"clap": 1, "clip": NaN, "lr": 1e999, "entropy_coef_head": {"oops": 1, "op": "x"}},
        "policy": {"floor": {"op": 3}}, "governor": true, "lifecycle": {"exploding": 1e-9}}"""
    )
    assert {line.split(":")[0] for line in lines} == {
        "rounds",
        "epochs",
        "preset",
        "slots",
        "ppo.clap",
        "ppo.clip",
        "ppo.lr",
        "ppo.entropy_coef_head.oops",
        "ppo.entropy_coef_head.op",
        "policy.floor.op",
        "governor",
        "lifecycle.exploding",
    }
    assert "rounds: expected a valid integer, got two values" in lines


def test_a_fault_names_path_value_and_what_is_allowed():
    assert faults('{"ppo": {"clip": 2}}') == [
        "ppo.clip: expected a number less than or equal to 1, got 2"
    ]
    assert faults('{"engine": {"threads": 0}}') == [
        "engine.threads: expected a number greater than or equal to 1, got 0"
    ]
    assert faults('{"reward": {"rule": "gold"}}') == [
        f'reward.rule: expected one of {", ".join(RULES)}, got "gold"'
    ]
    assert faults('{"data": {"bach": 3}}') == [
        "data.bach: expected one of name, dir, placement, resident_limit_gib, prefetch, batch, "
        "minibatches, val_samples, augment, got an unknown name (did you mean batch?)"
    ]


@pytest.mark.parametrize("text", ["[]", "null"])
def test_only_an_object_is_a_config(text):
    assert faults(text) == [f"config: expected one JSON object, got {text}"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{} x",
        "{}{}",
        "{'a': 1}",
        '{"rounds": 01}',
        '{"rounds": 1,}',
        "\ufeff\ufeff{}",
        "[" * 99_999,
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text):
    (line,) = faults(text)
    assert line.startswith("not JSON: ")


def test_a_byte_order_mark_is_no_part_of_a_config():
    assert parse_config('\ufeff{"rounds": 3}') == RunSpec(rounds=3)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 400, "1" * 5000]
)
def test_numbers_that_are_none_are_refused(number):
    assert faults(f'{{"ppo": {{"lr": {number}}}}}')


def test_odd_names_are_quoted_in_one_ascii_line():
    (line,) = faults('{"ppo": {"a\\nb\\ud800 é": 1}}')
    assert line.startswith('ppo."a\\nb\\\\ud800 \\u00e9": ')


def test_odd_slot_names_are_quoted_in_one_ascii_line():
    (line,) = faults('{"slots": ["r0c0", "\u00a1c1", "r9\\nc9"]}')
    assert line.endswith('got ["r0c0", "\\u00a1c1", "r9\\nc9"]')


def test_a_preset_named_in_a_file_lies_beneath_the_file():
    spec = parse_config('{"preset": "smoke", "rounds": 7, "data": {"batch": 3}}')
    assert (spec.preset, spec.rounds, spec.envs) == ("smoke", 7, 4)
    assert (spec.data.batch, spec.data.minibatches, spec.policy.hidden) == (3, 2, 16)


@given(st.sampled_from(tuple(PRESETS)))
def test_a_complete_config_is_not_changed_by_the_preset_it_came_from(name):
    spec = resolve(build_spec({"preset": name}))
    assert parse_config(dump_config(spec)) == spec


SETTINGS = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


def get(settings, path):
    for name in path:
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings


@given(SETTINGS, SETTINGS, st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_the_upper_layer_wins_and_the_lower_one_shows_where_it_is_silent(lower, upper, path):
    found, above, below = (
        get(settings, path) for settings in (merge_settings(lower, upper), upper, lower)
    )
    if above is not None and not isinstance(above, dict):
        assert found == above
    shadowed = any(isinstance(get(upper, path[:cut]), int) for cut in range(1, len(path)))
    if above is None and not shadowed:
        assert found == below


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("rounds=3", {"rounds": 3}),
        ("ppo.clip=0.1", {"ppo": {"clip": 0.1}}),
        ("task=digits", {"task": "digits"}),
        ('task="digits"', {"task": "digits"}),
        ("data.augment=false", {"data": {"augment": False}}),
        ("data.val_samples=null", {"data": {"val_samples": None}}),
        ("policy.floor.op=0.01", {"policy": {"floor": {"op": 0.01}}}),
        ('policy.floor={"op": 0.01}', {"policy": {"floor": {"op": 0.01}}}),
        ('engine.devices=["cuda:0"]', {"engine": {"devices": ["cuda:0"]}}),
    ],
)
def test_an_assignment_sets_one_path(text, settings):
    assert parse_assignment(text) == settings


@pytest.mark.parametrize(
    "text", ["", "=", "=3", "rounds", "ppo.=3", ".clip=3", "a..b=1", "rounds=", "rounds=1 2", "x={"]
)
def test_an_assignment_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="--set"):
        parse_assignment(text)


def test_an_assignment_refuses_doubled_keys():
    with pytest.raises(ConfigError, match=r"policy\.floor\.op: expected .*, got two values"):
        build_spec(parse_assignment('policy.floor={"op": 0.01, "op": 0.02}'))
