"""Completion in a shell: commands, flags, names of settings, and paths."""

import importlib.util
import subprocess

import pytest

from morphogen.cli import main
from morphogen.config.task import DEFAULT_PRESET
from morphogen.extras.completion import command as completion

WORDS = [
    ("morphogen tr", "train"),
    ("morphogen train heu", "heuristic"),
    ("morphogen train --pres", "--preset"),
    ("morphogen train --preset sm", "smoke"),
    ("morphogen train heuristic --policy ra", "random"),
    ("morphogen data digits_i", "digits_impaired"),
    ("morphogen config ppo.cl", "ppo.clip"),
    ("morphogen train --config my", "my.json"),
    ("morphogen resume old", "old-run"),
]


def script_of(shell, capsys):
    assert main.main(["completion", shell]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_has_a_script_with_commands_flags_and_names(shell, capsys):
    script = script_of(shell, capsys)
    for word in ("train", "completion", "preset", DEFAULT_PRESET, "ppo.clip"):
        assert word in script


def test_bash_completes_words_by_the_script(tmp_path, capsys):
    (tmp_path / "script").write_text(script_of("bash", capsys))
    (tmp_path / "my.json").touch()
    (tmp_path / "old-run").mkdir()
    lines = ["source ./script"]
    for text, _ in WORDS:
        count = len(text.split())
        lines += [
            f"COMP_WORDS=({text}); COMP_CWORD={count - 1}; COMPREPLY=()",
            "_shtab_morphogen",
            'echo "${COMPREPLY[*]}"',
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert dict(zip(WORDS, done.stdout.splitlines(), strict=True)) == {row: row[1] for row in WORDS}


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main.main(["completion", "bash"]) == 2
    assert "pip install 'morphogen[completion]'" in capsys.readouterr().err
