"""`morphogen bench --explain` tells how every convolution is computed."""

import pytest

from morphogen import kernels
from morphogen.cli import main, probe
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET

SPEC = resolve(RunSpec(envs=2, slots=("r0c0", "r0c1")))


def test_every_shape_of_a_convolution_is_there_once():
    found = probe.list_conv_layers(SPEC)
    assert [layer.name for layer in found[:3]] == [
        "host, block0.conv",
        "host, block1.conv",
        "r0c0, conv_light.conv",
    ]
    assert len({layer[1:] for layer in found}) == len(found)
    assert [layer.size for layer in found if layer.name.startswith("host")] == [8, 4]
    assert {layer.depthwise for layer in found if layer.name.endswith(".dw")} == {True}
    assert not any(layer.depthwise for layer in found if not layer.name.endswith(".dw"))


@pytest.mark.slow
def test_rows_tell_all_forms_and_the_chosen_one(capsys):
    assert main.main(["bench", "--envs", "2", "--slots", "r0c0", "--explain"]) == 0
    reported = capsys.readouterr().out
    assert "host, block0.conv" in reported
    rows = probe.explain(resolve(RunSpec(preset=DEFAULT_PRESET, envs=2, slots=("r0c0",))))
    assert [row["convolution"] in reported for row in rows] == [True] * len(rows)
    ours = [row for row in rows if row["chosen"] == "kernel"]
    assert bool(ours) == kernels.CAN_CONVOLVE
    assert {row["chosen"] for row in rows} == {"ordered", "kernel"} if ours else {"innermost"}
    assert all((row["kernel ms"] is not None) == (row in ours) for row in rows)
    assert all(float(str(row[name])) > 0 for row in rows for name in ("torch ms", "innermost ms"))


def test_an_explanation_has_no_file(capsys, tmp_path):
    assert main.main(["bench", "--explain", "--json", str(tmp_path / "x.json")]) == 2
    assert "not allowed with" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()
