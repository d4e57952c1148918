"""Command `config`: every setting is explained, in one place."""

import json
from functools import reduce
from operator import getitem

import pytest

from morphogen.cli import main
from morphogen.cli.config import find_settings
from morphogen.config.config_files import dump_config
from morphogen.config.reference import list_settings
from morphogen.config.spec import RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError

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


def test_one_setting_is_explained(capsys):
    assert main.main(["config", "ppo.clip"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["setting"] == "ppo.clip"
    assert lines["meaning"] == "clip range of the probability ratio"
    assert lines["allowed"] == "a number > 0 and <= 1"
    assert lines["default"] == "0.2"
    assert lines["value"] == "0.2 in `morphogen train`"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["ppo.imitation_rounds"], "3 in `morphogen train`"),
        (["ppo.imitation_rounds", "--preset", "smoke"], "1 in `morphogen train --preset smoke`"),
        (
            ["ppo.imitation_rounds", "--task", "cifar_baseline"],
            "0 in `morphogen train --task cifar_baseline`",
        ),
        (["host.lr", "--preset", "tiny"], "0.1 in `morphogen train --preset tiny`"),
        (["preset"], f'"{DEFAULT_PRESET}" in `morphogen train`'),
    ],
)
def test_the_value_that_a_run_uses_stands_beside_the_default(words, value, capsys):
    assert main.main(["config", *words]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["value"] == value
    assert lines["default"] in ("0", "null")


@pytest.mark.parametrize("words", [[], ["--preset", "smoke"]])
def test_every_value_is_that_of_the_run(words, capsys):
    assert main.main(["config", "--json", *words]) == 0
    values = {row["path"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert main.main(["train", "--print-config", *words]) == 0
    config = json.loads(capsys.readouterr().out)
    assert all(reduce(getitem, path.split("."), config) == value for path, value in values.items())


def test_a_flag_is_named_where_there_is_one(capsys):
    assert main.main(["config", "ppo.lr"]) == 0
    assert "--lr, --set ppo.lr=VALUE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "count"), [("", len(SETTINGS)), ("signal", 4), ("telemetry.wandb", 6)]
)
def test_a_group_or_all_are_listed(name, count, capsys):
    assert main.main(["config", name, "--json"] if name else ["config", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == count
    assert rows[0].keys() == {"path", "meaning", "allowed", "default", "flag", "value"}
    assert main.main(["config", *filter(None, [name])]) == 0
    assert f"{count} settings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("clip", "setting: expected ppo.clip, got"),
        ("ppo.clap", "setting: expected ppo.clip"),
        ("zzz", "expected one that `morphogen config` lists"),
    ],
)
def test_an_unknown_name_is_refused_with_the_closest_ones(name, message):
    with pytest.raises(ConfigError, match=message):
        find_settings(name)


def test_an_error_about_a_setting_adds_its_meaning(capsys):
    assert main.main(["train", "--set", "ppo.clip=3", "--dry-run"]) == 2
    line = "ppo.clip: expected a number > 0 and <= 1, got 3 (clip range of the probability ratio)"
    assert capsys.readouterr().err == f"morphogen: error: {line}\n"
