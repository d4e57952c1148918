"""The study of worlds: a small one measured, its file and its table."""

import json

import pytest

from bench.studies import worlds


@pytest.mark.slow
def test_a_world_is_measured_and_written_and_others_stay(tmp_path, monkeypatch, capsys):
    file = tmp_path / "worlds.json"
    small = {"blueprints": ["conv_light", "conv_heavy"], "slots": ["r0c0"]}
    monkeypatch.setattr(worlds, "SIZES", {"tiny": small, "pydoc": {}})
    row = worlds.measure_world("tiny", 2, search=True)
    assert row["host_parameters"] == 150
    # without growing a network is worth its accuracy
    assert row["value"]["host"] == pytest.approx(row["score"]["host"] / 100)
    assert row["value"]["best static"] >= row["value"]["host"] - 1e-9
    assert 0 <= row["schedule"]["value"] <= 1
    assert row["trained"] is None
    file.write_text(json.dumps({"worlds": {"pydoc": row}}))
    monkeypatch.setattr(worlds, "measure_world", lambda task, count, search, train: row)
    worlds.main(["--only", "tiny", "--json", str(file)])
    assert json.loads(file.read_text())["worlds"].keys() == {"pydoc", "tiny"}
    printed = capsys.readouterr().out
    worlds.main(["--table", "--json", str(file)])
    assert printed.endswith(capsys.readouterr().out)
    assert "| `tiny` | 150, " in printed
