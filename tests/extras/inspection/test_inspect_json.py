"""`--json`: one document on stdout with the names of the tables, and nothing else there."""

import json

import pytest

import morphogen as mg
from morphogen.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of eleven short rounds, one more than a table shows."""
    place = tmp_path_factory.mktemp("runs") / "run"
    fields = {"preset": "tiny", "rounds": 11, "envs": 4, "policy_name": "wait", "episode_length": 2}
    mg.train_ppo_vectorized(**fields, final_episodes=0, telemetry={"level": "normal"}, out=place)
    return place


def document_of(capsys, *words):
    assert main.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_inspect_has_the_facts_and_all_rows_of_its_tables(run, capsys):
    found = document_of(capsys, "inspect", str(run))
    assert found["facts"]["policy"] == "wait, reward rule delta"
    assert [row["round"] for row in found["tables"]["rounds"]] == list(range(1, 12))
    assert main.main(["inspect", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "rounds, the last 10 of 11" in text
    assert " ".join(list(found["tables"]["rounds"][0])[:3]) in text


def test_inspect_of_a_checkpoint(run, capsys):
    found = document_of(capsys, "inspect", str(next((run / "checkpoints").iterdir())))
    assert found["facts"]["state"] == "every file is as it was saved"
    assert {"bytes", "sha256", "round", "epoch"} <= set(found["facts"])
