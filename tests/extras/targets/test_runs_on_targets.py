"""Runs on tables with other targets: resumed bit for bit, and reported under the name of the score."""

import json

import pytest
from support.extras import needs_extra
from support.run_comparison import same_policy

from morphogen.cli.main import main

pytestmark = [
    pytest.mark.slow,
    needs_extra("arrays"),
    needs_extra("modules"),
    needs_extra("text"),  # blueprints for dense features
]

TASKS = """
import torch
import morphogen as mg

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.grow = torch.nn.Linear(5, 12), mg.Slot()
        self.head = torch.nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.grow(torch.relu(self.stem(x))))

x = torch.sin(torch.arange(240 * 5, dtype=torch.float32).view(240, 5) ** 2 * 0.37)
labels = torch.stack([x[:, 0] * x[:, 1] + x[:, 2], x[:, 3] - x[:, 4].square()], -1) > 0
own = {"dataset": mg.from_arrays("labels", x, labels), "host": mg.host_from_module(Net)}
defaults = {"episode_length": 4, "data": {"minibatches": 4, "batch": 16}}
task = mg.TaskSpec(name="labels", **own, loss="bce_with_logits", defaults=defaults)
mg.TASKS.register("labels", task)
"""


def run(*words):
    assert main(list(words)) == 0


def test_a_run_is_resumed_bit_for_bit_and_names_its_score(tmp_path, monkeypatch, capsys):
    score = "label_accuracy"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TASKS)
    own = ["--import", "net.py"]
    task = ["train", *own, "--task", "labels", "--envs", "3", "--set", "checkpoint.every_rounds=1"]
    task += ["--set", "final_episodes=3"]
    run(*task, "--rounds", "2", "--out", "whole")
    shown = capsys.readouterr()
    assert f"  {score} " in shown.err
    assert f"{score} (as a share of 1)" in shown.err
    assert "best round: " in shown.out
    assert f"with a mean {score} of" in shown.out
    assert f"{score} %" in shown.out
    run(*task, "--rounds", "1", "--out", "part", "--quiet")
    run("resume", "part", *own, "--extend-rounds", "1", "--quiet")
    assert same_policy(tmp_path / "whole", tmp_path / "part")
    assert json.loads((tmp_path / "whole" / "manifest.json").read_text())["score"] == score
    capsys.readouterr()
    run("inspect", "whole", *own)
    run("watch", "whole", "--once")
    run("evaluate", "whole", *own, "--episodes", "4", "--arms", "wait")
    tables = capsys.readouterr().out
    assert f"held-out {score}" in tables
    assert tables.count(f"{score} %") >= 3
    assert "accuracy" not in tables.replace("label_accuracy", "")
