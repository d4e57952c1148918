"""Command `config`: every setting is explained, in one place."""

import json
import re
import subprocess
import sys
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from support.extras import has_extra

import morphogen
from morphogen.cli import main
from morphogen.config.config_files import dump_config
from morphogen.config.reference import list_settings
from morphogen.config.spec import RunSpec
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import ConfigError
from morphogen.extras.catalogue.settings_command import find_settings
from morphogen.extras.catalogue.settings_page import describe_allowed, render_page

SETTINGS = list(list_settings())
PAGE = Path(morphogen.__file__).with_name("SETTINGS.md")
EXTRAS_ON_THE_PAGE = (  # have settings, or names that settings take
    "alarms, cifar, export, fashion, legacy_rewards, loggers, mnist, regimes, schedules, search, "
    "streaming, text, whitebox"
)


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
        (["ppo.price_warmup_rounds"], "6"),
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


@pytest.mark.skipif(
    not all(map(has_extra, EXTRAS_ON_THE_PAGE.split(", "))),
    reason="the page describes all extras",
)
def test_the_page_of_all_settings_is_what_the_command_prints():
    # in a process of its own, because other tests register names
    command = [sys.executable, "-m", "morphogen", "config", "--markdown"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert PAGE.read_text() == done.stdout


def test_every_setting_is_a_row_of_the_page_in_the_table_of_its_group():
    tables = re.split(r"^## `(.+)`$", render_page(SETTINGS), flags=re.MULTILINE)
    found = [
        f"{group}.{name}".removeprefix("run.")
        for group, table in zip(tables[1::2], tables[2::2], strict=True)
        for name in re.findall(r"^\| `(\w+)` \| `.*` \| .+ \| .+ \|$", table, flags=re.MULTILINE)
    ]
    assert sorted(found) == sorted(setting.path for setting in SETTINGS)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("seed", "integer >= 0"),
        ("envs", "integer in 1 .. 65536"),
        ("ppo.clip", "number > 0 and <= 1"),
        ("host.optimizer", "`sgd`, `adamw`"),
        ("data.augment", "`true`, `false`"),
        ("data.dir", "text; or `null`"),
        ("slots", "list of: text; or `null`"),
        ("instance.width", "`[low, high]`, each: number > 0 and <= 1; or `null`"),
        ("lifecycle.min_improvement", "number"),
    ],
)
def test_allowed_values_are_said_in_words(path, text):
    (setting,) = find_settings(path)
    assert describe_allowed(setting.allowed) == text


def test_a_page_of_values_is_refused(capsys):
    assert main.main(["config", "--markdown", "--preset", "smoke"]) == 2
    assert "--markdown: expected without --preset" in capsys.readouterr().err
