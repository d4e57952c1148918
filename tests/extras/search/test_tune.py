"""The command `tune`: an offered command, its help, its refusals, its files and its JSON
document.
"""

import json
import subprocess
import sys

import pytest
from support.subprocess_env import OURS

from morphogen.cli import main

SETTINGS = [
    "--preset=smoke",
    "--set=episode_length=5",
    "--set=data.minibatches=1",
    "--final-episodes=0",
    '--set=blueprints=["norm"]',
    "--set=lifecycle.min_training_epochs=1",
    '--set=lifecycle.auto_forward=["TRAIN", "BLEND", "HOLD"]',
    "--slots=r0c0",
]


@pytest.mark.parametrize("words", [["--help"], ["--out", "x.json", "--on", "0"]])
def test_help_and_refusals_load_no_torch(tmp_path, words):
    code = (
        "import sys\nfrom morphogen.cli import main\n"
        f"try:\n    main.main({['tune', *words]!r})\nexcept SystemExit:\n    pass\n"
        "print('END', 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=OURS
    )
    assert done.stdout.splitlines()[-1] == "END False"


@pytest.mark.slow
def test_the_command_searches_and_writes_and_a_run_takes_what_it_wrote(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main.main(["tune", *SETTINGS, "--out", "best.json", "--on", "3", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["file"], found["instances"]) == ("best.json", 3)
    assert isinstance(found["value"], float)
    assert shown.err.count("candidates on") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.json"]
    words = [*SETTINGS, "--policy", "schedule:best.json", "--rounds=1", "--quiet", "--out=run"]
    assert main.main(["train", "heuristic", *words]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "new.json", "--on", "0"], "--on: expected an integer in 1"),
        (["--out", "there.json"], "--out: expected a new file, got there.json, which exists"),
        ([], "the following arguments are required: --out"),
        (["--out", "new.json", "--family", "raective"], "reactive"),
    ],
)
def test_a_search_that_cannot_be_is_refused_and_writes_nothing(
    tmp_path, monkeypatch, capsys, words, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").write_text("")
    assert main.main(["tune", *words]) == 2
    assert said in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1
