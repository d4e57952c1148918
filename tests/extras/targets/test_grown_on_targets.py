"""Networks that are grown on other targets."""

import numpy as np
import pytest
import torch
from support.extras import needs_extra
from target_tables import INPUTS, NUMBERS

import morphogen as mg
from morphogen.cli.main import main

pytestmark = [needs_extra("export"), needs_extra("text")]  # blueprints for dense features


@pytest.mark.slow
def test_growing_on_numbers_ends_with_a_table_of_the_explained_variance():
    lines = []
    data = mg.from_arrays("numbers", INPUTS, NUMBERS)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), mg.Slot(), torch.nn.Linear(8, 3))
    grown = mg.grow(net, data, loss="mse", epochs=6, copies=2, report=lines.append)
    test = data.splits.test
    variance = data.splits.train.labels.var(0, correction=0)
    with torch.no_grad():
        errors = (grown.module(test.inputs) - test.labels).square().mean(0)
    explained = 100 * float((1 - errors / variance).mean())
    assert explained > 5
    assert grown.score == pytest.approx(explained, abs=0.01)
    assert grown.table[0]["test explained %"] == pytest.approx(explained, abs=0.01)
    assert [row["explained"] for row in grown.history][-1] > 5
    assert any(line.startswith("grown, epoch 6/6: explained") for line in lines)


NET = """
import torch
import morphogen as mg

def build():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), mg.Slot(), torch.nn.Linear(8, 3))
"""


@pytest.mark.slow
def test_the_command_takes_the_loss_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    np.savez("table.npz", inputs=INPUTS.numpy(), labels=(NUMBERS > 0).numpy())
    words = ["grow", "net.py:build", "--data", "table.npz", "--epochs", "2", "--copies", "2"]
    assert main([*words, "--loss", "bce_with_logits"]) == 0
    shown = capsys.readouterr()
    assert "epoch 2/2: label_accuracy" in shown.err
    assert "test label_accuracy %" in shown.out
    assert main([*words, "--loss", "mae"]) == 2
    assert "task.loss: expected one of cross_entropy" in capsys.readouterr().err
    assert main(words) == 3
    assert "expected 120 class labels in 0 .. 2" in capsys.readouterr().err
