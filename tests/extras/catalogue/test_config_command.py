"""Command `config`: every setting is explained, in one place."""

import json
from functools import reduce
from operator import getitem

import pytest

from morphogen.cli import main
from morphogen.config.config_files import dump_config
from morphogen.config.reference import list_settings
from morphogen.config.spec import RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError
from morphogen.extras.catalogue.settings_command import find_settings

SETTINGS = list(list_settings())


def paths_of(tree, above=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from paths_of(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_every_setting_of_a_config_file_has_one_line_of_its_own():
    assert {setting.path for setting in SETTINGS} == set(
        paths_of(json.loads(dump_config(RunSpec())))
    ) - {"version"}
    meanings = [setting.meaning for setting in SETTINGS]
    assert len(set(meanings)) == len(meanings)
    for setting in SETTINGS:
        assert 4 <= len(setting.meaning) < 320, setting.path
        assert "\n" not in setting.meaning
        assert not setting.meaning.endswith("."), setting.path
        assert setting.meaning != setting.path.rpartition(".")[2], setting.path


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["ppo.clip"], "0.2"),
        (["ppo.imitation_rounds"], "3"),
        (["ppo.imitation_rounds", "--preset", "smoke"], "1"),
        (["host.lr", "--preset", "tiny"], "0.1"),
        (["preset"], DEFAULT_PRESET),
    ],
)
def test_the_value_that_a_run_uses_stands_next_to_the_default(words, value, capsys):
    assert main.main(["config", *words]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["setting"] == words[0]
    assert facts["value"] == value
    assert facts["default"] in ("0", "0.05", "null", "0.2")
    assert facts["meaning"]
    assert facts["allowed"]


def test_every_value_is_that_of_the_run(capsys):
    words = ["--preset", "smoke"]
    assert main.main(["config", "--json", *words]) == 0
    values = {row["setting"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert main.main(["train", "--print-config", *words]) == 0
    config = json.loads(capsys.readouterr().out)
    assert all(reduce(getitem, path.split("."), config) == value for path, value in values.items())


def test_a_group_is_a_table(capsys):
    assert main.main(["config", "policy.floor"]) == 0
    assert "8 settings; value: as in `morphogen train`" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["clip", "ppo.clap"])
def test_an_unknown_name_is_refused_with_the_closest_one(name):
    with pytest.raises(ConfigError, match=r"got .* \(did you mean ppo.clip\?\)"):
        find_settings(name)
