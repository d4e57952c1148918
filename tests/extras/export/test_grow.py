"""`grow` and the command: from a module and arrays to a grown network, and its files."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.extras import needs_extra
from torch import nn

import morphogen as mg
from morphogen.cli.main import main
from morphogen.errors import ConfigError
from morphogen.extras.export.network_files import save_network

pytestmark = needs_extra("text")  # blueprints for dense features

NET = """
import torch
import morphogen as mg

def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), mg.Slot(), torch.nn.Linear(8, 2))
"""


def line_data(name="line"):
    inputs = torch.linspace(-1, 1, 480).view(120, 4)
    inputs = inputs[torch.arange(120) * 7 % 120]
    return inputs, (inputs.sum(1) > 0).long(), name


def build_line_net():
    return nn.Sequential(nn.Linear(4, 8), mg.Slot(), nn.Linear(8, 2))


def grow_line(**options):
    inputs, labels, name = line_data()
    data = mg.from_arrays(name, inputs, labels)
    return mg.grow(build_line_net, data, **{"epochs": 10, "copies": 3, **options}), data


@pytest.fixture(scope="module")
def grown_on_products():
    """Growing of a linear network on labels that no linear network can tell."""
    inputs = torch.rand(600, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    data = mg.from_arrays("products", inputs, (inputs.prod(1) > 0).long())
    net = nn.Sequential(nn.Linear(2, 16), mg.Slot(), nn.Linear(16, 2))
    lines = []
    host = {"lr": 0.1}
    grown = mg.grow(lambda: net, data, epochs=8, copies=3, host=host, report=lines.append)
    return grown, data, lines


@pytest.mark.slow
def test_the_best_copy_is_returned_and_grew_what_the_host_lacks(grown_on_products):
    grown, data, _ = grown_on_products
    test = data.splits.test
    right = (grown.module(test.inputs).argmax(-1) == test.labels).double().mean() * 100
    assert grown.score == pytest.approx(float(right))
    first, alone, static = grown.table
    assert first["test accuracy %"] == pytest.approx(grown.score, abs=0.01)
    assert first["parameters"] == static["parameters"] > alone["parameters"] == 82
    assert first["seeds"] == static["seeds"] == "mlp at 1"
    assert grown.score > 85 > 65 > alone["test accuracy %"]


@pytest.mark.slow
def test_lines_show_the_seeds_of_every_network_and_the_time_that_is_left(grown_on_products):
    grown, _, lines = grown_on_products
    names = [row["network"] for row in grown.table]
    assert names == ["grown", "host alone", "same form from scratch"]
    assert [line.partition(":")[0] for line in lines] == [
        f"{name}, epoch {number}/8" for name in names for number in range(1, 9)
    ]
    assert ["3 mlp at 1" in line for line in lines] == [True] * 8 + [False] * 8 + [True] * 8
    assert lines[-1].endswith("; 0:00 left")
    assert len(grown.history) == 8


def test_where_no_seed_is_kept_the_form_is_the_host_alone():
    lines = []
    grown, _ = grow_line(policy="wait", epochs=2, report=lines.append)
    assert lines[-1] == "grown: no seed is kept; its form is the host alone"
    _, alone, static = grown.table
    assert static == alone | {"network": "same form from scratch", "seconds": 0.0}


@pytest.mark.slow
def test_growing_again_is_the_same():
    tables = [grow_line()[0].table for _ in range(2)]
    first, again = ([{**row, "seconds": 0} for row in table] for table in tables)
    assert first == again


@pytest.mark.slow
def test_a_network_grows_by_adamw_and_keeps_its_frozen_parameters():
    module = build_line_net()
    inputs, labels, name = line_data()
    data = mg.from_arrays(name, inputs, labels)
    host = {"optimizer": "adamw", "schedule": "cosine", "lr": 0.01, "freeze": ["0.*"]}
    grown = mg.grow(module, data, epochs=6, copies=2, host=host)
    assert grown.module[0].weight.equal(module[0].weight)
    assert grown.module[0].bias.equal(module[0].bias)
    assert not grown.module[2].weight.equal(module[2].weight)


def test_a_policy_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="policy: expected the directory of a run, or one of"):
        grow_line(policy="heuristik")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels, _ = line_data()
    np.savez("line.npz", inputs=inputs.numpy(), labels=labels.numpy())
    np.savez("other.npz", x=inputs.numpy())
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.mark.slow
def test_the_command_grows_a_network_of_a_file_and_writes_it(folder, capsys):
    words = ["grow", "net.py:build", "--data", "line.npz", "--epochs", "3", "--copies", "2"]
    assert main([*words, "--out", "grown.safetensors", "--json", "grown.json"]) == 0
    out, err = capsys.readouterr()
    assert "host alone" in out
    assert "epoch 3/3" in err
    assert 'load_file("grown.safetensors")' in err
    written = json.loads((folder / "grown.json").read_text())
    assert len(written["history"]) == 3
    assert {"0.weight", "2.bias"} <= set(load_file(folder / "grown.safetensors"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["net.py", "--data", "line.npz"], "network: expected FILE.py:NAME"),
        (["net.py:bild", "--data", "line.npz"], "network: expected a name in net.py"),
        (["nat.py:build", "--data", "line.npz"], "nat.py, which cannot be found"),
        (["net.py:build", "--data", "other.npz"], "expected the arrays inputs and labels"),
        (["net.py:build", "--data", "net.py"], "expected an .npz file without objects"),
        (["net.py:build", "--data", "line.npz", "--price", "2"], "--price: expected a number"),
        (["net.py:build", "--data", "line.npz", "--copies", "0"], "--copies: expected an integer"),
        (["net.py:build", "--data", "line.npz", "--out", "a.bin"], "--out: expected a name that"),
        (["net.py:build", "--data", "line.npz", "--out", "net.py"], "--out: expected a new file"),
    ],
)
def test_the_command_refuses_bad_words_in_one_line(folder, capsys, words, message):
    assert main(["grow", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_program_of_torch_takes_any_number_of_samples(tmp_path):
    grown, data = grow_line(epochs=1, copies=2)
    path = tmp_path / "grown.pt2"
    lines = save_network(grown.module, data.inputs[:2], path)
    assert lines[1] == f'net = torch.export.load("{path}").module()'
    loaded = torch.export.load(path).module()
    torch.testing.assert_close(loaded(data.inputs[:9]), grown.module(data.inputs[:9]))


def test_the_name_of_a_task_stands_for_its_samples():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), mg.Slot(), nn.Linear(8, 10))
    grown = mg.grow(net, "digits", epochs=1, copies=2)
    assert grown.module(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    with pytest.raises(ConfigError, match="data: expected a data set or a task with samples"):
        mg.grow(net, "digit", epochs=1, copies=2)


@needs_extra("whitebox")
def test_a_task_without_samples_is_refused():
    with pytest.raises(ConfigError, match="data: expected a data set or a task with samples"):
        mg.grow(build_line_net, "whitebox", epochs=1, copies=2)
