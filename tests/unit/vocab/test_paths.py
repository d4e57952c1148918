"""Paths as people write them: `~` is a home folder in every argument, flag, setting and
variable.
"""

from pathlib import Path

import pytest
from support.extras import has_extra, rows_of_extra

import morphogen as mg
from morphogen.cli import main
from morphogen.data.data_files import find_folder
from morphogen.errors import CheckpointError, ConfigError, DataError
from morphogen.log import run_directory
from morphogen.vocab.paths import expand_path

UNKNOWN = "~nobody_of_this_name/x"
CALLS = {
    **rows_of_extra("inspection", lambda: {"tables": lambda: mg.tables("~/none")}),
    "events": lambda: mg.events("~/none"),
    **rows_of_extra("evaluate", lambda: {"evaluate": lambda: mg.evaluate("~/none")}),
    **rows_of_extra(
        "pictures",
        lambda: {
            "report": lambda: mg.report("~/none"),
            "report, out": lambda: mg.report("~/run", out="~/file"),
        },
    ),
    **rows_of_extra(  # only the second one is not found
        "compare", lambda: {"compare": lambda: mg.compare("~/run", "~/none")}
    ),
    "resume": lambda: mg.resume("~/none"),
    "train": lambda: mg.train_ppo_vectorized(preset="smoke", out="~/file"),
    "load_checkpoint": lambda: mg.load_checkpoint("~/none"),
    "load_policy": lambda: mg.load_policy("~/none"),
    **rows_of_extra(
        "cifar",
        lambda: {"data.dir": lambda: mg.make("cifar_minimal", envs=1, data={"dir": "~/none"})},
    ),
    **rows_of_extra(
        "schedules",
        lambda: {
            "schedule": lambda: mg.build_arm("schedule:~/file", mg.make("tiny", envs=1).setup)
        },
    ),
    **{
        name: lambda name=name: mg.build_arm(f"{name}:~/none", mg.make("tiny", envs=1).setup)
        for name in ("reactive", "trained")
    },
}
COMMANDS = (
    *("train --out {}", "train --config {}", "train --telemetry-dir {}"),
    *["data cifar_minimal --data-dir {}"] * (has_extra("cifar") and has_extra("catalogue")),
    *["train heuristic --preset smoke --policy schedule:{}"] * has_extra("schedules"),
    'train --preset smoke --set telemetry.dir="{}"',
    *(
        "resume {}",
        "watch {}",
    ),
    *["inspect {}"] * has_extra("inspection"),
    *("evaluate {}", "evaluate {} --json {}") * has_extra("evaluate"),
    *["report {}"] * has_extra("pictures"),
    *["compare {} {}x"] * has_extra("compare"),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a file and a folder, as the only place that is known."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    config = mg.dump_config(mg.RunSpec())
    with run_directory.create_directory(tmp_path / "run", config=config, manifest={"run_id": "1"}):
        pass
    return tmp_path


@pytest.mark.parametrize(("text", "path"), [("~", ""), ("~/x/y", "x/y"), (Path("~/x"), "x")])
def test_a_tilde_is_the_home_folder(home, text, path):
    assert expand_path(text) == home / path


@pytest.mark.parametrize("text", ["x", "./x", "/x", "x/~", "x~", "./~", ""])
def test_other_paths_are_as_they_are(text):
    assert expand_path(text) == Path(text)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_take_a_tilde(home, call):
    with pytest.raises(
        (ConfigError, DataError, CheckpointError),
        match=rf"{home}/(none|file|run)|got \"~/none\"|~/file: not JSON",
    ):
        call()
    assert not list(home.glob("~*"))


def test_settings_and_variables_take_a_tilde(home, monkeypatch):
    spec = mg.RunSpec(telemetry={"dir": "~/events"}, data={"dir": "~/data"})
    assert (spec.telemetry.dir, spec.data.dir) == (f"{home}/events", f"{home}/data")
    monkeypatch.setenv("MORPHOGEN_DATA", "~/data")
    assert find_folder(None) == (home / "data", "$MORPHOGEN_DATA")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_home_folder_that_is_unknown_is_refused_in_one_line(home, command, capsys):
    assert main.main(command.replace("{}", UNKNOWN).split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "expected a known home folder for ~, got" in line
    assert sorted(entry.name for entry in home.iterdir()) == ["file", "run"]


def test_without_any_home_folder_a_tilde_is_refused(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("posixpath.os.getuid", lambda: 54_321)  # no entry in /etc/passwd
    for text in ("~", "~/x"):
        with pytest.raises(ConfigError, match='path: expected a known home folder for ~, got "~'):
            expand_path(text)
