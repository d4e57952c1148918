"""Runs on a network of plain torch: replayed, stopped and resumed, from the command line."""

import pytest
from support.run_comparison import same_policy

from morphogen.cli.main import main

NET = """
import torch
import morphogen as mg

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.grow0 = torch.nn.Conv2d(1, 4, 3, padding=1), mg.Slot()
        self.block = torch.nn.Sequential(
            torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.1)
        )
        self.grow1, self.head = mg.Slot(), torch.nn.Linear(4, 10)

    def forward(self, x):
        h = self.grow0(torch.relu(self.stem(x)))
        return self.head((h + self.grow1(self.block(h))).mean((2, 3)))

numbers = torch.arange(240 * 64, dtype=torch.float32).view(240, 1, 8, 8)
data = mg.from_arrays("waves", torch.sin(numbers * 0.37), torch.arange(240) % 10)
host = mg.host_from_module(Net)
defaults = {
    "episode_length": 3,
    "data": {"minibatches": 5, "batch": 8, "val_samples": 16},
    "lifecycle": {"auto_forward": ["TRAIN", "HOLD"], "min_training_epochs": 1},
}
mg.TASKS.register("waves", mg.TaskSpec(name="waves", dataset=data, host=host, defaults=defaults))
"""


def run(*words):
    assert main(list(words)) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_on_a_module_is_replayed_and_resumed_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    task = ["train", "--import", "net.py", "--task", "waves", "--envs", "2", "--quiet"]
    task += ["--set", "final_episodes=0", "--set", "checkpoint.every_rounds=1"]
    run(*task, "--rounds", "2", "--out", "whole")
    run(*task, "--rounds", "2", "--out", "eager", "--capture", "off")
    assert same_policy(tmp_path / "whole", tmp_path / "eager")
    run(*task, "--rounds", "1", "--out", "part")
    run("resume", "part", "--import", "net.py", "--extend-rounds", "1", "--quiet")
    assert same_policy(tmp_path / "whole", tmp_path / "part")
